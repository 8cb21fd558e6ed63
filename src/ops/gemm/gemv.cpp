#include "ops/gemm/gemv.h"

#include <algorithm>

#include "core/simd.h"

namespace chiron {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements of w per range

/// out[r] = dot(w, row r of x), rows k apart.
template <int kRows, class T>
inline void dots(const T* w, const T* x, int64_t k, Acc<T> (&out)[kRows]) {
  // Two sums per row, so that one addition need not wait for the last.
  simd::Vec<Acc<T>> even[kRows] = {}, odd[kRows] = {};
  int64_t i = 0;
  for (; i + 2 * simd::kLanes <= k; i += 2 * simd::kLanes) {
    const auto w0 = simd::load(w + i), w1 = simd::load(w + i + simd::kLanes);
    for (int r = 0; r < kRows; ++r) {
      even[r] += w0 * simd::load(x + r * k + i);
      odd[r] += w1 * simd::load(x + r * k + i + simd::kLanes);
    }
  }
  for (; i < k; i += simd::kLanes) {
    const int64_t n = std::min(simd::kLanes, k - i);
    for (int r = 0; r < kRows; ++r) even[r] += simd::load(w + i, n) * simd::load(x + r * k + i, n);
  }
  for (int r = 0; r < kRows; ++r) out[r] = simd::sum<Acc<T>>(even[r] + odd[r]);
}

template <int kRows, class T>
void gemv_rows(Stream& s, Rows y, View x, View w, View bias, View residual) {
  using A = Acc<T>;
  const int64_t n = y.cols, k = x.cols(), ldy = y.ld;
  const T *px = x.data<T>(), *pw = w.data<T>();
  const T* pb = bias.present() ? bias.data<T>() : nullptr;
  const T* pr = residual.present() ? residual.data<T>() : nullptr;
  T* py = y.data<T>();
  s.parallel(n, kGrain / std::max<int64_t>(k, 1), [=](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      A out[kRows];
      dots<kRows>(pw + j * k, px, k, out);
      for (int r = 0; r < kRows; ++r) {
        if (pb) out[r] += static_cast<A>(pb[j]);
        if (pr) out[r] += static_cast<A>(pr[r * n + j]);
        py[r * ldy + j] = static_cast<T>(out[r]);
      }
    }
  });
}

}  // namespace

void gemv(Stream& s, Rows y, View x, View w, View bias, View residual) {
  static_assert(kGemvRows == 4);
  CHECK(0 <= y.rows && y.rows <= kGemvRows, "gemv of {} rows", y.rows);
  by_float(y.dtype, [&]<class T>() {
    switch (y.rows) {
      case 0:
        return;
      case 1:
        return gemv_rows<1, T>(s, y, x, w, bias, residual);
      case 2:
        return gemv_rows<2, T>(s, y, x, w, bias, residual);
      case 3:
        return gemv_rows<3, T>(s, y, x, w, bias, residual);
      default:
        return gemv_rows<4, T>(s, y, x, w, bias, residual);
    }
  });
}

}  // namespace chiron
