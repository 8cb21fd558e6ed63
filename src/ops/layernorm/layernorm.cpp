#include "ops/layernorm/layernorm.h"

#include <cmath>

#include "core/simd.h"
#include "ops/layernorm/layernorm_gpu.h"
#include "ops/partial_sums.h"

namespace chiron {
namespace {

constexpr int64_t kRowGrain = 32;  // rows per range

}  // namespace

void layernorm(Stream& s, Tensor y, Tensor stat, View x, View w, View b, float eps) {
  const int64_t rows = x.rows(), cols = x.cols();
  CHECK(y.shape == x.shape && y.dtype == x.dtype && w.numel() == cols && w.dtype == x.dtype &&
            stat.shape == (Shape{rows, 2}) && stat.dtype == acc_dtype(x.dtype),
        "layernorm of {} {}", name_of(x.dtype), x.shape.str());
  CHECK(!b.present() || (b.numel() == cols && b.dtype == x.dtype));
  OpScope op(s, "layernorm", {y, stat}, {x, w, b}, 7.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::layernorm(s, y, stat, x, w, b, eps);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    using V = simd::Vec<A>;
    const T *px = x.data<T>(), *pw = w.data<T>(), *pb = b.present() ? b.data<T>() : nullptr;
    T* py = y.data<T>();
    A* ps = stat.data<A>();
    s.parallel(rows, kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = px + r * cols;
        T* out = py + r * cols;
        V sum{};
        simd::for_each_vector(cols, [&](int64_t i, auto n) { sum += simd::load(in + i, n); });
        A mean = simd::sum<A>(sum) / static_cast<A>(cols);
        V squares{};
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          V d = simd::load(in + i, n, mean) - mean;  // lanes beyond the row differ by 0
          squares += d * d;
        });
        A rstd = A(1) / std::sqrt(simd::sum<A>(squares) / static_cast<A>(cols) + static_cast<A>(eps));
        ps[2 * r] = mean;
        ps[2 * r + 1] = rstd;
        if (pb)
          simd::for_each_vector(cols, [&](int64_t i, auto n) {
            V z = (simd::load(in + i, n) - mean) * rstd;
            simd::store(out + i, z * simd::load(pw + i, n) + simd::load(pb + i, n), n);
          });
        else
          simd::for_each_vector(cols, [&](int64_t i, auto n) {
            simd::store(out + i, (simd::load(in + i, n) - mean) * rstd * simd::load(pw + i, n), n);
          });
      }
    });
  });
}

void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum_w, Tensor db, Accum accum_b, View dy, View x,
                        View stat, View w, Stack& temp) {
  const int64_t rows = x.rows(), cols = x.cols();
  const DType acc = acc_dtype(x.dtype);
  CHECK(dx.shape == x.shape && dx.dtype == x.dtype && dy.shape == x.shape && dy.dtype == x.dtype && w.numel() == cols &&
            w.dtype == x.dtype && stat.shape == (Shape{rows, 2}) && stat.dtype == acc,
        "layernorm_backward of {} {}", name_of(x.dtype), x.shape.str());
  CHECK(!dw.present() || (dw.numel() == cols && dw.dtype == acc));
  CHECK(!db.present() || (db.numel() == cols && db.dtype == acc));
  Scope scope(temp);
  // One partial sum per range of rows, then a sum over ranges in order: the same for any number of threads.
  const int64_t grain = rows_per_partial_sum(s, rows), parts = (rows + grain - 1) / grain;
  Tensor parts_w = dw.present() ? temp.push(acc, {parts, cols}) : Tensor{};
  Tensor parts_b = db.present() ? temp.push(acc, {parts, cols}) : Tensor{};
  OpScope op(s, "layernorm_backward", {dx, dw, db}, {dy, x, stat, w}, 14.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::layernorm_backward(s, dx, dw, accum_w, db, accum_b, dy, x, stat, w, parts_w, parts_b);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    using V = simd::Vec<A>;
    const T *pdy = dy.data<T>(), *px = x.data<T>(), *pw = w.data<T>();
    const A* ps = stat.data<A>();
    T* pdx = dx.data<T>();
    A* pdw = parts_w.present() ? parts_w.data<A>() : nullptr;
    A* pdb = parts_b.present() ? parts_b.data<A>() : nullptr;
    s.parallel(rows, grain, [=](int64_t begin, int64_t end) {
      A* sums_w = pdw ? pdw + begin / grain * cols : nullptr;
      A* sums_b = pdb ? pdb + begin / grain * cols : nullptr;
      for (int64_t r = begin; r < end; ++r) {
        const T *in = px + r * cols, *up = pdy + r * cols;
        T* out = pdx + r * cols;
        const A mean = ps[2 * r], rstd = ps[2 * r + 1];
        V sum_g{}, sum_gz{};
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          V g = simd::load(up + i, n) * simd::load(pw + i, n);  // 0 in lanes beyond the row
          sum_g += g;
          sum_gz += g * ((simd::load(in + i, n) - mean) * rstd);
        });
        const A mean_g = simd::sum<A>(sum_g) / static_cast<A>(cols);
        const A mean_gz = simd::sum<A>(sum_gz) / static_cast<A>(cols);
        const bool first = r == begin;
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          V vdy = simd::load(up + i, n), z = (simd::load(in + i, n) - mean) * rstd;
          V d = rstd * (vdy * simd::load(pw + i, n) - mean_g - z * mean_gz);
          simd::store(out + i, simd::load(out + i, n) + d, n);
          if (sums_w) simd::store(sums_w + i, first ? vdy * z : vdy * z + simd::load(sums_w + i, n), n);
          if (sums_b) simd::store(sums_b + i, first ? vdy : vdy + simd::load(sums_b + i, n), n);
        });
      }
    });
  });
  if (dw.present()) add_partial_sums(s, dw, accum_w, parts_w);
  if (db.present()) add_partial_sums(s, db, accum_b, parts_b);
}

}  // namespace chiron
