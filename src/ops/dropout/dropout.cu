#include "ops/dropout/dropout_gpu.h"

#include "ops/elementwise.cuh"

namespace chiron::gpu {
namespace {

template <class T>
struct Arguments {
  T* y;
  const T *x, *residual;  // residual may be null
  const int32_t* index;
  RandomKey key;
  int64_t pieces, row_pieces, cols, first_column;
  float scale;
  uint32_t threshold;
};

/// A thread per piece of a row. Bound by memory, with Philox's products close behind: about 40 of them for 8 elements.
template <class T>
__global__ void __launch_bounds__(kElementwiseThreads) dropout_kernel(Arguments<T> a) {
  const auto key = a.key.key();
  for (int64_t p = block() * num_threads() + thread(); p < a.pieces; p += num_blocks() * num_threads()) {
    const int64_t row = p / a.row_pieces, i = (p - row * a.row_pieces) * kVec<T>, at = row * a.cols + i;
    const auto index = static_cast<uint32_t>(a.index[row]);
    const int64_t column = a.first_column + i;
    // Bit j: column j behind the last multiple of 4 is kept.
    const int skip = static_cast<int>(column % 4);
    uint32_t kept = 0;
    for (int g = 0; 4 * g < kVec<T> + skip; ++g) {
      const auto words = philox({index, static_cast<uint32_t>(column / 4 + g), 0, 0}, key);
      for (int w = 0; w < 4; ++w) kept |= (words[w] < a.threshold ? 0u : 1u) << (4 * g + w);
    }
    Floats<T> v = load(a.x + at, a.cols - i);
    for (int j = 0; j < kVec<T>; ++j) {
      // A mask, not a choice, lest the product and the sum become one rounding: the bits are the CPU's.
      const uint32_t mask = 0u - (kept >> (skip + j) & 1u);
      v[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(v[j] * a.scale) & mask);
    }
    if (a.residual) {
      const Floats<T> r = load(a.residual + at, a.cols - i);
      for (int j = 0; j < kVec<T>; ++j) v[j] += r[j];
    }
    store(a.y + at, v, a.cols - i);
  }
}

}  // namespace

void dropout(Stream& s, Tensor y, View x, View residual, const Dropout& d) {
  // A thread that takes several pieces derives the key once for them.
  constexpr int64_t kPieces = 8;
  by_gpu_float(x.dtype, [&]<class T>() {
    const int64_t row_pieces = pieces_of<T>(x.cols()), pieces = x.rows() * row_pieces;
    launch(s, elementwise_launch("dropout_kernel", (pieces + kPieces - 1) / kPieces), dropout_kernel<T>,
           Arguments<T>{.y = y.data<T>(),
                        .x = x.data<T>(),
                        .residual = residual.present() ? residual.data<T>() : nullptr,
                        .index = d.index.data<int32_t>(),
                        .key = d.key,
                        .pieces = pieces,
                        .row_pieces = row_pieces,
                        .cols = x.cols(),
                        .first_column = d.first_column,
                        .scale = 1.0f / (1.0f - d.p),
                        .threshold = drop_threshold(d.p)});
  });
}

}  // namespace chiron::gpu
