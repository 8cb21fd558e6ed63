#include "ops/rope/rope_gpu.h"

#include "ops/elementwise.cuh"

namespace chiron::gpu {
namespace {

constexpr int64_t kHeads = 8;  // that share the cosines which a thread computes

template <class T>
struct Arguments {
  T* x;
  const int32_t* positions;
  const float* inv_freq;
  int64_t items, pieces, groups;  // items = rows x groups of heads x pieces of half a head
  int64_t ld, heads, half;
  double sign;
};

/// A thread per piece of the pairs of a token's heads, up to kHeads of them. Bound by memory.
template <class T>
__global__ void __launch_bounds__(kElementwiseThreads) rope_kernel(Arguments<T> a) {
  for (int64_t n = block() * num_threads() + thread(); n < a.items; n += num_blocks() * num_threads()) {
    const int64_t above = n / a.pieces, row = above / a.groups;
    const int64_t i = (n - above * a.pieces) * kVec<T>, group = above - row * a.groups;
    Floats<T> cosine, sine;
    for (int j = 0; j < kVec<T>; ++j) {
      // The angle of a late position needs more digits than a float has; what is left of it after whole turns does not.
      constexpr double kTurn = 6.283185307179586477, kRound = 0x1.8p52;  // adding kRound rounds to an integer
      const double freq = i + j < a.half ? static_cast<double>(a.inv_freq[i + j]) : 0;
      const double angle = a.sign * freq * static_cast<double>(a.positions[row]);
      const double turns = (angle * (1 / kTurn) + kRound) - kRound;
      const auto rest = static_cast<float>(angle - turns * kTurn);
      cosine[j] = cos(rest);
      sine[j] = sin(rest);
    }
    const int64_t end = a.heads < (group + 1) * kHeads ? a.heads : (group + 1) * kHeads;
    for (int64_t h = group * kHeads; h < end; ++h) {
      T *low = a.x + row * a.ld + h * 2 * a.half + i, *high = low + a.half;
      Floats<T> u = load(low, a.half - i), v = load(high, a.half - i);
      for (int j = 0; j < kVec<T>; ++j) {
        const float was = u[j];
        u[j] = was * cosine[j] - v[j] * sine[j];
        v[j] = v[j] * cosine[j] + was * sine[j];
      }
      store(low, u, a.half - i);
      store(high, v, a.half - i);
    }
  }
}

}  // namespace

void rope(Stream& s, Rows x, View positions, View inv_freq, int64_t heads, bool inverse) {
  by_gpu_float(x.dtype, [&]<class T>() {
    const int64_t half = inv_freq.numel(), pieces = pieces_of<T>(half), groups = (heads + kHeads - 1) / kHeads;
    const int64_t items = x.rows * groups * pieces;
    launch(s, elementwise_launch("rope_kernel", items), rope_kernel<T>,
           Arguments<T>{.x = x.data<T>(),
                        .positions = positions.data<int32_t>(),
                        .inv_freq = inv_freq.data<float>(),
                        .items = items,
                        .pieces = pieces,
                        .groups = groups,
                        .ld = x.ld,
                        .heads = heads,
                        .half = half,
                        .sign = inverse ? -1.0 : 1.0});
  });
}

}  // namespace chiron::gpu
