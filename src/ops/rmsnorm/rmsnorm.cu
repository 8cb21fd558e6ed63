#include "core/launch.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"
#include "ops/partial_sums.h"
#include "ops/rmsnorm/rmsnorm_gpu.h"
#include "ops/row_norm.cuh"

namespace chiron::gpu {
namespace {

/// A team per row. Bound by memory: x is read once from it, a second time from the cache.
template <class T, bool kWarp>
__global__ void __launch_bounds__(256)
    rmsnorm_kernel(T* y, float* rstd, const T* x, const T* w, int64_t rows, int64_t cols, float eps) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  for (int64_t row = team.first_row(); row < rows; row += team.num_teams()) {
    const T* in = x + row * cols;
    T* out = y + row * cols;
    const int64_t first = static_cast<int64_t>(team.rank()) * kVec<T>,
                  step = static_cast<int64_t>(team.size()) * kVec<T>;
    float squares = 0;
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> v = load(in + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j) squares += v[j] * v[j];
    }
    const float scale = rsqrt(team.sum(squares) / static_cast<float>(cols) + eps);
    if (team.rank() == 0) rstd[row] = scale;
    for (int64_t i = first; i < cols; i += step) {
      Floats<T> v = load(in + i, cols - i);
      const Floats<T> weight = load(w + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j) v[j] = v[j] * scale * weight[j];
      store(out + i, v, cols - i);
    }
  }
}

}  // namespace

void rmsnorm(Stream& s, Tensor y, Tensor rstd, View x, View w, float eps) {
  const auto [by_warp, how] = row_launch("rmsnorm_kernel", x.rows(), x.cols());
  by_gpu_float(x.dtype, [&]<class T>() {
    launch(s, how, by_warp ? rmsnorm_kernel<T, true> : rmsnorm_kernel<T, false>, y.data<T>(), rstd.data<float>(),
           x.data<T>(), w.data<T>(), x.rows(), x.cols(), eps);
  });
}

void rmsnorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum, View dy, View x, View rstd, View w,
                      Tensor partial) {
  by_gpu_float(x.dtype, [&]<class T>() {
    launch_norm_backward<false>(s, "rmsnorm_backward_kernel",
                                NormBackward<T>{.dx = dx.data<T>(),
                                                .parts_w = dw.present() ? partial.data<float>() : nullptr,
                                                .dy = dy.data<T>(),
                                                .x = x.data<T>(),
                                                .w = w.data<T>(),
                                                .stat = rstd.data<float>(),
                                                .rows = x.rows(),
                                                .cols = x.cols(),
                                                .range = rows_per_partial_sum(s, x.rows())});
  });
  if (dw.present()) add_partial_sums(s, dw, accum, partial);
}

}  // namespace chiron::gpu
