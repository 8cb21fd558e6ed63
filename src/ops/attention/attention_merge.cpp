#include <cmath>
#include <limits>

#include "core/simd.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_gpu.h"

namespace chiron {

void attention_merge(Stream& s, Rows o, Tensor lse, Rows o2, View lse2, int64_t heads) {
  CHECK(heads > 0 && o.cols % heads == 0 && o2.rows == o.rows && o2.cols == o.cols && o2.dtype == o.dtype &&
            lse.numel() == o.rows * heads && lse2.numel() == lse.numel() && lse.dtype == acc_dtype(o.dtype) &&
            lse2.dtype == lse.dtype,
        "attention_merge of ({}, {}) and ({}, {}) with {} heads", o.rows, o.cols, o2.rows, o2.cols, heads);
  OpScope op(s, "attention_merge", {o, lse}, {o, lse, o2, lse2}, 3.0 * static_cast<double>(o.rows * o.cols));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::attention_merge(s, o, lse, o2, lse2, heads);
  by_float(o.dtype, [&]<class T>() {
    using A = Acc<T>;
    constexpr A kInfinity = std::numeric_limits<A>::infinity();
    constexpr int64_t kRowGrain = 16;
    T* out = o.data<T>();
    const T* with = o2.data<T>();
    A* sum = lse.data<A>();
    const A* sum2 = lse2.data<A>();
    const int64_t dim = o.cols / heads, ld = o.ld, ld2 = o2.ld;
    s.parallel(o.rows, kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin * heads; i < end * heads; ++i) {
        const A first = sum[i], second = sum2[i];
        if (second == -kInfinity) continue;
        const A top = first > second ? first : second;
        const A e = std::exp(first - top), e2 = std::exp(second - top), total = e + e2;
        sum[i] = top + std::log(total);
        const A weight = e / total, weight2 = e2 / total;
        T* x = out + i / heads * ld + i % heads * dim;
        const T* y = with + i / heads * ld2 + i % heads * dim;
        int64_t d = 0;
        for (; d + simd::kLanes <= dim; d += simd::kLanes)
          simd::store(x + d, simd::load(x + d) * weight + simd::load(y + d) * weight2);
        if (const int64_t n = dim - d; n > 0)
          simd::store(x + d, simd::load(x + d, n) * weight + simd::load(y + d, n) * weight2, n);
      }
    });
  });
}

}  // namespace chiron
