#include "ops/rmsnorm/rmsnorm.h"

#include <cmath>

#include "core/simd.h"

namespace chiron {
namespace {

constexpr int64_t kRowGrain = 32;    // rows per range; also the rows of one partial sum of dw
constexpr int64_t kColGrain = 1024;  // columns per range when partial sums are added up

template <class T>
Acc<T> dot(const T* a, const T* b, int64_t n) {
  simd::Vec<Acc<T>> sum{};
  int64_t i = 0;
  for (; i + simd::kLanes <= n; i += simd::kLanes) sum += simd::load(a + i) * simd::load(b + i);
  if (i < n) sum += simd::load(a + i, n - i) * simd::load(b + i, n - i);
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
        int64_t i = 0;
        for (; i + simd::kLanes <= cols; i += simd::kLanes)
          simd::store(out + i, simd::load(in + i) * scale * simd::load(pw + i));
        if (i < cols) {
          int64_t n = cols - i;
          simd::store(out + i, simd::load(in + i, n) * scale * simd::load(pw + i, n), n);
        }
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
  const int64_t parts = (rows + kRowGrain - 1) / kRowGrain;
  Tensor partial = dw.present() ? temp.push(dw.dtype, {parts, cols}) : Tensor{};
  OpScope op(s, "rmsnorm_backward", {dx, dw}, {dy, x, rstd, w}, 10.0 * static_cast<double>(x.numel()));
  if (!op) return;
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T *pdy = dy.data<T>(), *px = x.data<T>(), *pw = w.data<T>();
    const A* pr = rstd.data<A>();
    T* pdx = dx.data<T>();
    A* pp = partial.present() ? partial.data<A>() : nullptr;
    s.parallel(rows, kRowGrain, [=](int64_t begin, int64_t end) {
      A* sums = pp ? pp + begin / kRowGrain * cols : nullptr;
      for (int64_t r = begin; r < end; ++r) {
        const T *in = px + r * cols, *up = pdy + r * cols;
        T* out = pdx + r * cols;
        // n == kLanes is the whole-vector path; the tail goes through the same code with fewer lanes.
        auto each = [=](auto&& f) {
          int64_t i = 0;
          for (; i + simd::kLanes <= cols; i += simd::kLanes)
            f(i, simd::load(in + i), simd::load(up + i), simd::load(pw + i), simd::kLanes);
          if (int64_t n = cols - i; n > 0) f(i, simd::load(in + i, n), simd::load(up + i, n), simd::load(pw + i, n), n);
        };
        using V = simd::Vec<A>;
        V acc{};
        each([&](int64_t, V vx, V vdy, V vw, int64_t) { acc += vdy * vw * vx; });
        A scale = pr[r], mean = simd::sum<A>(acc) / static_cast<A>(cols) * scale * scale;
        each([&](int64_t i, V vx, V vdy, V vw, int64_t n) {
          V d = scale * (vdy * vw - vx * mean);
          if (n == simd::kLanes)
            simd::store(out + i, simd::load(out + i) + d);
          else
            simd::store(out + i, simd::load(out + i, n) + d, n);
          if (!sums) return;
          V g = vdy * vx * scale;
          if (n < simd::kLanes)
            simd::store(sums + i, r == begin ? g : g + simd::load(sums + i, n), n);
          else
            simd::store(sums + i, r == begin ? g : g + simd::load(sums + i));
        });
      }
    });
    if (!pp) return;
    A* pdw = dw.data<A>();
    s.parallel(cols, kColGrain, [=](int64_t begin, int64_t end) {
      if (accum == Accum::overwrite) std::memset(pdw + begin, 0, static_cast<size_t>(end - begin) * sizeof(A));
      for (int64_t p = 0; p < parts; ++p)
        for (int64_t i = begin; i < end; ++i) pdw[i] += pp[p * cols + i];
    });
  });
}

}  // namespace chiron
