#include "ops/gelu/gelu_gpu.h"

#include "ops/elementwise.cuh"

namespace chiron::gpu {
namespace {

// 0.5 (1 + tanh u) = sigmoid(2u) saves the cancellation at negative x; u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;

__device__ float normal_cdf(float x) { return 0.5f * (1.0f + erf(x * 0.70710678118654752f)); }

template <Gelu kKind>
struct Value {
  __device__ float operator()(float x) const {
    if constexpr (kKind == Gelu::erf) return x * normal_cdf(x);
    return x * sigmoid(x * (kTwice + kTwice * kCubic * x * x));
  }
};

template <Gelu kKind>
struct Derivative {
  __device__ float operator()(float dy, float x) const {
    if constexpr (kKind == Gelu::erf) return dy * (normal_cdf(x) + x * exp(-0.5f * x * x) * 0.39894228040143268f);
    const float p = sigmoid(x * (kTwice + kTwice * kCubic * x * x));
    return dy * (p + x * p * (1.0f - p) * (kTwice + 3 * kTwice * kCubic * x * x));
  }
};

}  // namespace

void gelu(Stream& s, Tensor y, View x, Gelu kind) {
  by_gpu_float(x.dtype, [&]<class T>() {
    if (kind == Gelu::tanh)
      launch_elementwise<T, T>(s, "gelu_kernel", Value<Gelu::tanh>{}, y, x);
    else
      launch_elementwise<T, T>(s, "gelu_kernel", Value<Gelu::erf>{}, y, x);
  });
}

void gelu_backward(Stream& s, Tensor dx, View dy, View x, Gelu kind) {
  by_gpu_float(x.dtype, [&]<class T>() {
    if (kind == Gelu::tanh)
      launch_elementwise<T, T, T>(s, "gelu_backward_kernel", Derivative<Gelu::tanh>{}, dx, dy, x);
    else
      launch_elementwise<T, T, T>(s, "gelu_backward_kernel", Derivative<Gelu::erf>{}, dx, dy, x);
  });
}

}  // namespace chiron::gpu
