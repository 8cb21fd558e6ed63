#include "ops/layernorm/layernorm_gpu.h"
#include "ops/partial_sums.h"
#include "ops/row_norm.cuh"

namespace chiron::gpu {
namespace {

/// A team per row. Bound by memory: x is read once from it, twice more from the cache.
template <class T, bool kWarp>
__global__ void __launch_bounds__(256)
    layernorm_kernel(T* y, float* stat, const T* x, const T* w, const T* b, int64_t rows, int64_t cols, float eps) {
  SharedMemory memory;
  const Team<kWarp> team(memory);
  for (int64_t row = team.first_row(); row < rows; row += team.num_teams()) {
    const T* in = x + row * cols;
    T* out = y + row * cols;
    const int64_t first = static_cast<int64_t>(team.rank()) * kVec<T>,
                  step = static_cast<int64_t>(team.size()) * kVec<T>;
    float sum = 0;
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> v = load(in + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j) sum += v[j];
    }
    const float mean = team.sum(sum) / static_cast<float>(cols);
    float squares = 0;
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> v = load(in + i, cols - i, mean);
      for (int j = 0; j < kVec<T>; ++j) squares += (v[j] - mean) * (v[j] - mean);
    }
    const float rstd = rsqrt(team.sum(squares) / static_cast<float>(cols) + eps);
    if (team.rank() == 0) {
      stat[2 * row] = mean;
      stat[2 * row + 1] = rstd;
    }
    for (int64_t i = first; i < cols; i += step) {
      Floats<T> v = load(in + i, cols - i);
      const Floats<T> weight = load(w + i, cols - i);
      const Floats<T> bias = b ? load(b + i, cols - i) : Floats<T>{};
      for (int j = 0; j < kVec<T>; ++j) v[j] = (v[j] - mean) * rstd * weight[j] + bias[j];
      store(out + i, v, cols - i);
    }
  }
}

}  // namespace

void layernorm(Stream& s, Tensor y, Tensor stat, View x, View w, View b, float eps) {
  const auto [by_warp, how] = row_launch("layernorm_kernel", x.rows(), x.cols());
  by_gpu_float(x.dtype, [&]<class T>() {
    launch(s, how, by_warp ? layernorm_kernel<T, true> : layernorm_kernel<T, false>, y.data<T>(), stat.data<float>(),
           x.data<T>(), w.data<T>(), b.present() ? b.data<T>() : nullptr, x.rows(), x.cols(), eps);
  });
}

void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum_w, Tensor db, Accum accum_b, View dy, View x,
                        View stat, View w, Tensor parts_w, Tensor parts_b) {
  by_gpu_float(x.dtype, [&]<class T>() {
    launch_norm_backward<true>(s, "layernorm_backward_kernel",
                               NormBackward<T>{.dx = dx.data<T>(),
                                               .parts_w = dw.present() ? parts_w.data<float>() : nullptr,
                                               .parts_b = db.present() ? parts_b.data<float>() : nullptr,
                                               .dy = dy.data<T>(),
                                               .x = x.data<T>(),
                                               .w = w.data<T>(),
                                               .stat = stat.data<float>(),
                                               .rows = x.rows(),
                                               .cols = x.cols(),
                                               .range = rows_per_partial_sum(s, x.rows())});
  });
  if (dw.present()) add_partial_sums(s, dw, accum_w, parts_w);
  if (db.present()) add_partial_sums(s, db, accum_b, parts_b);
}

}  // namespace chiron::gpu
