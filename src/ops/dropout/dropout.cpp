#include "ops/dropout/dropout.h"

#include <algorithm>

#include "core/simd_philox.h"
#include "ops/dropout/dropout_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kChunk = 512;  // columns drawn at a time

/// keep[i] = 0xff or 0 for columns 4 * group + i, i < 64 * blocks, of the token `index`.
inline void draw(uint8_t* keep, uint32_t index, int64_t group, int64_t blocks, std::array<uint32_t, 2> key,
                 uint32_t threshold) {
  simd::U32 lane;
  for (int i = 0; i < simd::kLanes; ++i) lane[i] = static_cast<uint32_t>(i);
  for (int64_t b = 0; b < blocks; ++b) {
    simd::U32 groups = lane + static_cast<uint32_t>(group + b * simd::kLanes);
    auto words = simd::philox({simd::splat(index), groups, simd::U32{}, simd::U32{}}, key);
    simd::keep_bytes(keep + 64 * b, words, threshold);
  }
}

void run(Stream& s, const char* name, Tensor y, View x, View residual, const Dropout& d) {
  const int64_t rows = x.rows(), cols = x.cols();
  CHECK(y.shape == x.shape && y.dtype == x.dtype, "{} of {} {}", name, name_of(x.dtype), x.shape.str());
  CHECK(!residual.present() || (residual.shape == x.shape && residual.dtype == x.dtype));
  CHECK(d.index.dtype == DType::i32 && d.index.numel() == rows && d.first_column >= 0 && d.key.step != nullptr);
  CHECK(d.p > 0 && d.p < 1, "a dropout of {} is no op", d.p);
  OpScope op(s, name, {y}, {x, residual, d.index}, 20.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::dropout(s, y, x, residual, d);
  const auto key = d.key.key();
  const uint32_t threshold = drop_threshold(d.p);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T *px = x.data<T>(), *pr = residual.present() ? residual.data<T>() : nullptr;
    T* py = y.data<T>();
    const auto* index = d.index.data<int32_t>();
    const A scale = A(1) / (A(1) - static_cast<A>(d.p));
    s.parallel(rows, 4096 / cols + 1, [=, first = d.first_column](int64_t begin, int64_t end) {
      alignas(64) uint8_t keep[kChunk + 2 * 64];
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < cols; c += kChunk) {
          const int64_t count = std::min(kChunk, cols - c), skip = (first + c) % 4;
          draw(keep, static_cast<uint32_t>(index[r]), (first + c) / 4, (skip + count + 63) / 64, key, threshold);
          const int64_t at = r * cols + c;
          simd::for_each_vector(count, [&](int64_t i, auto n) {
            auto v = simd::keep_or_zero<A>(simd::load(px + at + i, n) * scale, keep + skip + i);
            if (pr) v += simd::load(pr + at + i, n);
            simd::store(py + at + i, v, n);
          });
        }
      }
    });
  });
}

}  // namespace

void dropout(Stream& s, Tensor y, View x, View residual, const Dropout& d) { run(s, "dropout", y, x, residual, d); }

void dropout_backward(Stream& s, Tensor dx, View dy, const Dropout& d) { run(s, "dropout_backward", dx, dy, {}, d); }

}  // namespace chiron
