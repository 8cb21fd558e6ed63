#include "ops/residual/residual.h"

#include "core/simd.h"
#include "ops/residual/residual_gpu.h"

namespace chiron {

void add(Stream& s, Tensor y, View a, View b) {
  CHECK(a.shape == y.shape && b.shape == y.shape && a.dtype == y.dtype && b.dtype == y.dtype,
        "add of {} {} and {} {} to {} {}", name_of(a.dtype), a.shape.str(), name_of(b.dtype), b.shape.str(),
        name_of(y.dtype), y.shape.str());
  OpScope op(s, "add", {y}, {a, b}, static_cast<double>(y.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::add(s, y, a, b);
  constexpr int64_t kGrain = 16384;  // elements per range
  by_float(y.dtype, [&]<class T>() {
    const T *pa = a.data<T>(), *pb = b.data<T>();
    T* py = y.data<T>();
    s.parallel(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
      simd::for_each_vector(end - begin, [&](int64_t i, auto n) {
        simd::store(py + begin + i, simd::load(pa + begin + i, n) + simd::load(pb + begin + i, n), n);
      });
    });
  });
}

}  // namespace chiron
