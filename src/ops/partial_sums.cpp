#include "ops/partial_sums.h"

#include <cstring>

#include "core/simd.h"
#include "ops/partial_sums_gpu.h"

namespace chiron {

void add_partial_sums(Stream& s, Tensor to, Accum accum, View parts) {
  constexpr int64_t kColGrain = 256;
  const int64_t cols = to.numel(), num_parts = parts.shape[0];
  CHECK(parts.shape == (Shape{num_parts, cols}) && parts.dtype == to.dtype);
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::add_partial_sums(s, to, accum, parts);
  by_float(to.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, Acc<T>>) {
      const T* from = parts.data<T>();
      T* sums = to.data<T>();
      s.parallel(cols, kColGrain, [=](int64_t begin, int64_t end) {
        if (accum == Accum::overwrite) std::memset(sums + begin, 0, static_cast<size_t>(end - begin) * sizeof(T));
        for (int64_t p = 0; p < num_parts; ++p) {
          const T* part = from + p * cols + begin;
          simd::for_each_vector(end - begin, [&](int64_t i, auto n) {
            simd::store(sums + begin + i, simd::load(sums + begin + i, n) + simd::load(part + i, n), n);
          });
        }
      });
    } else {
      throw Bug("partial sums are kept in f32 or f64, not in {}", name_of(to.dtype));
    }
  });
}

}  // namespace chiron
