#include <limits>

#include "core/launch.h"
#include "gpu/vec.h"
#include "ops/attention/attention_gpu.h"

namespace chiron::gpu {
namespace {

constexpr int kThreads = 256, kTeam = 8;  // lanes that take a row of a head together

/// A team per row of a head. Bound by memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_merge_kernel(T* o, int64_t ld, float* lse, const T* o2, int64_t ld2, const float* lse2, int64_t items,
                           int64_t heads, int64_t dim) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t item = block() * (kThreads / kTeam) + thread() / kTeam;
  const float first = item < items ? lse[item] : 0.0f, second = item < items ? lse2[item] : -kInfinity;
  sync_warp();  // all lanes have read lse
  if (second == -kInfinity) return;
  const float top = first > second ? first : second, e = exp(first - top), e2 = exp(second - top), total = e + e2;
  if (lane() % kTeam == 0) lse[item] = top + log(total);
  const float weight = e / total, weight2 = e2 / total;
  T* x = o + item / heads * ld + item % heads * dim;
  const T* y = o2 + item / heads * ld2 + item % heads * dim;
  for (int64_t i = lane() % kTeam * kVec<T>; i < dim; i += kTeam * kVec<T>) {
    Floats<T> a = load(x + i, dim - i);
    const Floats<T> b = load(y + i, dim - i);
    for (int j = 0; j < kVec<T>; ++j) a[j] = a[j] * weight + b[j] * weight2;
    store(x + i, a, dim - i);
  }
}

}  // namespace

void attention_merge(Stream& s, Rows o, Tensor lse, Rows o2, View lse2, int64_t heads) {
  const int64_t items = o.rows * heads;
  if (items == 0) return;
  by_gpu_float(o.dtype, [&]<class T>() {
    launch(s,
           {.kernel = "attention_merge_kernel",
            .blocks = (items + kThreads / kTeam - 1) / (kThreads / kTeam),
            .threads = kThreads},
           attention_merge_kernel<T>, o.data<T>(), o.ld, lse.data<float>(), o2.data<T>(), o2.ld, lse2.data<float>(),
           items, heads, o.cols / heads);
  });
}

}  // namespace chiron::gpu
