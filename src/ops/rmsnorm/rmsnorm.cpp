#include "ops/rmsnorm/rmsnorm.h"

#include <cmath>

#include "core/simd.h"
#include "ops/partial_sums.h"
#include "ops/rmsnorm/rmsnorm_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kRowGrain = 32;  // rows per range

template <class T>
Acc<T> dot(const T* a, const T* b, int64_t n) {
  simd::Vec<Acc<T>> sum{};
  simd::for_each_vector(n, [&](int64_t i, auto lanes) { sum += simd::load(a + i, lanes) * simd::load(b + i, lanes); });
  return simd::sum<Acc<T>>(sum);
}

}  // namespace

void rmsnorm(Stream& s, Tensor y, Tensor rstd, View x, View w, float eps) {
  const int64_t rows = x.rows(), cols = x.cols();
  CHECK(y.shape == x.shape && y.dtype == x.dtype && w.numel() == cols && w.dtype == x.dtype && rstd.numel() == rows &&
            rstd.dtype == acc_dtype(x.dtype),
        "rmsnorm of {} {}", name_of(x.dtype), x.shape.str());
  OpScope op(s, "rmsnorm", {y, rstd}, {x, w}, 4.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::rmsnorm(s, y, rstd, x, w, eps);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T *px = x.data<T>(), *pw = w.data<T>();
    T* py = y.data<T>();
    A* pr = rstd.data<A>();
    s.parallel(rows, kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = px + r * cols;
        T* out = py + r * cols;
        A scale = A(1) / std::sqrt(dot(in, in, cols) / static_cast<A>(cols) + static_cast<A>(eps));
        pr[r] = scale;
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          simd::store(out + i, simd::load(in + i, n) * scale * simd::load(pw + i, n), n);
        });
      }
    });
  });
}

void rmsnorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum, View dy, View x, View rstd, View w, Stack& temp) {
  const int64_t rows = x.rows(), cols = x.cols();
  CHECK(dx.shape == x.shape && dx.dtype == x.dtype && dy.shape == x.shape && dy.dtype == x.dtype && w.numel() == cols &&
            w.dtype == x.dtype && rstd.numel() == rows && rstd.dtype == acc_dtype(x.dtype),
        "rmsnorm_backward of {} {}", name_of(x.dtype), x.shape.str());
  CHECK(!dw.present() || (dw.numel() == cols && dw.dtype == acc_dtype(x.dtype)));
  Scope scope(temp);
  // One partial sum of dw per range of rows, then a sum over ranges in order: the same for any number of threads.
  const int64_t grain = rows_per_partial_sum(s, rows), parts = (rows + grain - 1) / grain;
  Tensor partial = dw.present() ? temp.push(dw.dtype, {parts, cols}) : Tensor{};
  OpScope op(s, "rmsnorm_backward", {dx, dw}, {dy, x, rstd, w}, 10.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::rmsnorm_backward(s, dx, dw, accum, dy, x, rstd, w, partial);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T *pdy = dy.data<T>(), *px = x.data<T>(), *pw = w.data<T>();
    const A* pr = rstd.data<A>();
    T* pdx = dx.data<T>();
    A* pp = partial.present() ? partial.data<A>() : nullptr;
    s.parallel(rows, grain, [=](int64_t begin, int64_t end) {
      A* sums = pp ? pp + begin / grain * cols : nullptr;
      for (int64_t r = begin; r < end; ++r) {
        const T *in = px + r * cols, *up = pdy + r * cols;
        T* out = pdx + r * cols;
        using V = simd::Vec<A>;
        V acc{};
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          acc += simd::load(up + i, n) * simd::load(pw + i, n) * simd::load(in + i, n);
        });
        A scale = pr[r], mean = simd::sum<A>(acc) / static_cast<A>(cols) * scale * scale;
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          V vx = simd::load(in + i, n), vdy = simd::load(up + i, n);
          V d = scale * (vdy * simd::load(pw + i, n) - vx * mean);
          simd::store(out + i, simd::load(out + i, n) + d, n);
          if (!sums) return;
          V g = vdy * vx * scale;
          simd::store(sums + i, r == begin ? g : g + simd::load(sums + i, n), n);
        });
      }
    });
  });
  if (dw.present()) add_partial_sums(s, dw, accum, partial);
}

}  // namespace chiron
