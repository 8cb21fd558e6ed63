#include "ops/softmax/softmax.h"

#include <algorithm>
#include <limits>

#include "core/simd.h"
#include "ops/softmax/softmax_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kElementGrain = 1 << 14;

int64_t rows_per_range(int64_t cols) { return std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, cols)); }

}  // namespace

void softmax(Stream& s, Rows y, Rows x, float scale) {
  CHECK(y.dtype == x.dtype && y.rows == x.rows && y.cols == x.cols, "softmax of ({}, {}) {} into ({}, {}) {}", x.rows,
        x.cols, name_of(x.dtype), y.rows, y.cols, name_of(y.dtype));
  const int64_t cols = x.cols;
  OpScope op(s, "softmax", {y}, {x}, 5.0 * static_cast<double>(x.rows * cols));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::softmax(s, y, x, scale);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    using V = simd::Vec<A>;
    constexpr A kInfinity = std::numeric_limits<A>::infinity();
    const T* px = x.data<T>();
    T* py = y.data<T>();
    const int64_t ldx = x.ld, ldy = y.ld;
    s.parallel(x.rows, rows_per_range(cols), [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = px + r * ldx;
        T* out = py + r * ldy;
        auto scaled = [=](int64_t i, auto n) {
          V v = simd::load(in + i, n) * static_cast<A>(scale);
          for (int64_t lane = n; lane < simd::kLanes; ++lane) v[lane] = -kInfinity;
          return v;
        };
        V highest = simd::splat(-kInfinity);
        simd::for_each_vector(cols, [&](int64_t i, auto n) { highest = simd::max<A>(highest, scaled(i, n)); });
        A shift = simd::max_of<A>(highest);
        if (shift == -kInfinity) shift = 0;  // all masked: e^-inf = 0 instead of e^(-inf + inf)
        V sums{};
        simd::for_each_vector(cols, [&](int64_t i, auto n) { sums += simd::exp<A>(scaled(i, n) - shift); });
        // The exponentials are computed a second time: stored ones would be rounded to T before they are divided.
        A sum = simd::sum<A>(sums), inverse = sum == 0 ? A(0) : A(1) / sum;
        simd::for_each_vector(
            cols, [&](int64_t i, auto n) { simd::store(out + i, simd::exp<A>(scaled(i, n) - shift) * inverse, n); });
      }
    });
  });
}

void softmax_backward(Stream& s, Rows dx, Rows dy, Rows y, float scale) {
  CHECK(dx.dtype == y.dtype && dy.dtype == y.dtype && dx.rows == y.rows && dy.rows == y.rows && dx.cols == y.cols &&
            dy.cols == y.cols,
        "softmax_backward of ({}, {}) {}", y.rows, y.cols, name_of(y.dtype));
  const int64_t cols = y.cols;
  OpScope op(s, "softmax_backward", {dx}, {dy, y}, 5.0 * static_cast<double>(y.rows * cols));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::softmax_backward(s, dx, dy, y, scale);
  by_float(y.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T *py = y.data<T>(), *pdy = dy.data<T>();
    T* pdx = dx.data<T>();
    const int64_t ldy = y.ld, lddy = dy.ld, lddx = dx.ld;
    s.parallel(y.rows, rows_per_range(cols), [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T *value = py + r * ldy, *up = pdy + r * lddy;
        T* out = pdx + r * lddx;
        simd::Vec<A> sums{};
        simd::for_each_vector(cols,
                              [&](int64_t i, auto n) { sums += simd::load(value + i, n) * simd::load(up + i, n); });
        A dot = simd::sum<A>(sums);
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          simd::store(out + i, static_cast<A>(scale) * simd::load(value + i, n) * (simd::load(up + i, n) - dot), n);
        });
      }
    });
  });
}

}  // namespace chiron
