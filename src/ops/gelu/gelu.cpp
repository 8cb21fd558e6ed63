#include "ops/gelu/gelu.h"

#include "core/simd.h"
#include "ops/gelu/gelu_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kGrain = 8192;  // elements per range

// 0.5 (1 + tanh u) = sigmoid(2u) saves the cancellation at negative x; u = sqrt(2/pi) (x + 0.044715 x^3).
template <class A>
simd::Vec<A> twice_u(simd::Vec<A> x) {
  return x * (A(1.5957691216057308) + A(1.5957691216057308 * 0.044715) * x * x);
}

template <class A>
simd::Vec<A> normal_cdf(simd::Vec<A> x) {
  return A(0.5) * (A(1) + simd::erf<A>(x * A(0.70710678118654752)));
}

template <class A>
simd::Vec<A> value(simd::Vec<A> x, Gelu kind) {
  return x * (kind == Gelu::tanh ? simd::sigmoid<A>(twice_u<A>(x)) : normal_cdf<A>(x));
}

template <class A>
simd::Vec<A> derivative(simd::Vec<A> x, Gelu kind) {
  if (kind == Gelu::erf) return normal_cdf<A>(x) + x * simd::exp<A>(A(-0.5) * x * x) * A(0.39894228040143268);
  simd::Vec<A> p = simd::sigmoid<A>(twice_u<A>(x));
  return p + x * p * (A(1) - p) * (A(1.5957691216057308) + A(3 * 1.5957691216057308 * 0.044715) * x * x);
}

void check(const char* name, View y, View x) {
  CHECK(y.shape == x.shape && y.dtype == x.dtype, "{} of {} {} to {} {}", name, name_of(x.dtype), x.shape.str(),
        name_of(y.dtype), y.shape.str());
}

}  // namespace

void gelu(Stream& s, Tensor y, View x, Gelu kind) {
  check("gelu", y, x);
  OpScope op(s, "gelu", {y}, {x}, 20.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::gelu(s, y, x, kind);
  by_float(x.dtype, [&]<class T>() {
    const T* px = x.data<T>();
    T* py = y.data<T>();
    s.parallel(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
      simd::for_each_vector(end - begin, [&](int64_t i, auto n) {
        simd::store(py + begin + i, value<Acc<T>>(simd::load(px + begin + i, n), kind), n);
      });
    });
  });
}

void gelu_backward(Stream& s, Tensor dx, View dy, View x, Gelu kind) {
  check("gelu_backward", dx, x);
  check("gelu_backward", dy, x);
  OpScope op(s, "gelu_backward", {dx}, {dy, x}, 30.0 * static_cast<double>(x.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::gelu_backward(s, dx, dy, x, kind);
  by_float(x.dtype, [&]<class T>() {
    const T *pdy = dy.data<T>(), *px = x.data<T>();
    T* pdx = dx.data<T>();
    s.parallel(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
      simd::for_each_vector(end - begin, [&](int64_t i, auto n) {
        auto d = derivative<Acc<T>>(simd::load(px + begin + i, n), kind);
        simd::store(pdx + begin + i, simd::load(pdy + begin + i, n) * d, n);
      });
    });
  });
}

}  // namespace chiron
