#include "core/launch.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"
#include "ops/softmax/softmax_gpu.h"

namespace chiron::gpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A team per row. Bound by memory: x is read once from it, twice more from the cache. The exponentials are computed
/// a second time: stored ones would be rounded to T before they are divided.
template <class T, bool kWarp>
__global__ void __launch_bounds__(256)
    softmax_kernel(T* y, int64_t ldy, const T* x, int64_t ldx, int64_t rows, int64_t cols, float scale) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  const int64_t first = static_cast<int64_t>(team.rank()) * kVec<T>, step = static_cast<int64_t>(team.size()) * kVec<T>;
  for (int64_t row = team.first_row(); row < rows; row += team.num_teams()) {
    const T* in = x + row * ldx;
    T* out = y + row * ldy;
    float top = -kInfinity, sum = 0;
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> v = load(in + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j)
        if (i + j < cols) top = Max{}(top, v[j] * scale);
    }
    top = team.max(top);
    const float shift = top == -kInfinity ? 0.0f : top;  // all masked: e^-inf = 0 instead of e^(-inf + inf)
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> v = load(in + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j)
        if (i + j < cols) sum += exp(v[j] * scale - shift);
    }
    sum = team.sum(sum);
    const float inverse = sum == 0 ? 0.0f : 1 / sum;
    for (int64_t i = first; i < cols; i += step) {
      Floats<T> v = load(in + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j) v[j] = exp(v[j] * scale - shift) * inverse;
      store(out + i, v, cols - i);
    }
  }
}

/// A team per row. Bound by memory: y and dy are read once from it, a second time from the cache.
template <class T, bool kWarp>
__global__ void __launch_bounds__(256)
    softmax_backward_kernel(T* dx, int64_t lddx, const T* dy, int64_t lddy, const T* y, int64_t ldy, int64_t rows,
                            int64_t cols, float scale) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  const int64_t first = static_cast<int64_t>(team.rank()) * kVec<T>, step = static_cast<int64_t>(team.size()) * kVec<T>;
  for (int64_t row = team.first_row(); row < rows; row += team.num_teams()) {
    const T *value = y + row * ldy, *up = dy + row * lddy;
    T* out = dx + row * lddx;
    float dot = 0;
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> a = load(value + i, cols - i), b = load(up + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j) dot += a[j] * b[j];
    }
    dot = team.sum(dot);
    for (int64_t i = first; i < cols; i += step) {
      const Floats<T> a = load(value + i, cols - i);
      Floats<T> b = load(up + i, cols - i);
      for (int j = 0; j < kVec<T>; ++j) b[j] = scale * a[j] * (b[j] - dot);
      store(out + i, b, cols - i);
    }
  }
}

}  // namespace

void softmax(Stream& s, Rows y, Rows x, float scale) {
  const auto [by_warp, how] = row_launch("softmax_kernel", x.rows, x.cols);
  by_gpu_float(x.dtype, [&]<class T>() {
    launch(s, how, by_warp ? softmax_kernel<T, true> : softmax_kernel<T, false>, y.data<T>(), y.ld, x.data<T>(), x.ld,
           x.rows, x.cols, scale);
  });
}

void softmax_backward(Stream& s, Rows dx, Rows dy, Rows y, float scale) {
  const auto [by_warp, how] = row_launch("softmax_backward_kernel", y.rows, y.cols);
  by_gpu_float(y.dtype, [&]<class T>() {
    launch(s, how, by_warp ? softmax_backward_kernel<T, true> : softmax_backward_kernel<T, false>, dx.data<T>(), dx.ld,
           dy.data<T>(), dy.ld, y.data<T>(), y.ld, y.rows, y.cols, scale);
  });
}

}  // namespace chiron::gpu
