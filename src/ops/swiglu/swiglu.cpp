#include "ops/swiglu/swiglu.h"

#include "core/simd.h"
#include "ops/swiglu/swiglu_gpu.h"

namespace chiron {
namespace {

int64_t row_grain(int64_t cols) { return 8192 / cols + 1; }

void check(const char* name, View y, View gu) {
  CHECK(gu.cols() == 2 * y.cols() && gu.rows() == y.rows() && gu.dtype == y.dtype, "{} of {} {} and {} {}", name,
        name_of(gu.dtype), gu.shape.str(), name_of(y.dtype), y.shape.str());
}

}  // namespace

void swiglu(Stream& s, Tensor y, View gu) {
  check("swiglu", y, gu);
  const int64_t rows = y.rows(), cols = y.cols();
  OpScope op(s, "swiglu", {y}, {gu}, 16.0 * static_cast<double>(y.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::swiglu(s, y, gu);
  by_float(y.dtype, [&]<class T>() {
    const T* pgu = gu.data<T>();
    T* py = y.data<T>();
    s.parallel(rows, row_grain(cols), [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T *gate = pgu + r * 2 * cols, *up = gate + cols;
        T* out = py + r * cols;
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          auto g = simd::load(gate + i, n);
          simd::store(out + i, g * simd::sigmoid<Acc<T>>(g) * simd::load(up + i, n), n);
        });
      }
    });
  });
}

void swiglu_backward(Stream& s, Tensor dgu, View dy, View gu) {
  check("swiglu_backward", dy, gu);
  CHECK(dgu.shape == gu.shape && dgu.dtype == gu.dtype);
  const int64_t rows = dy.rows(), cols = dy.cols();
  OpScope op(s, "swiglu_backward", {dgu}, {dy, gu}, 22.0 * static_cast<double>(dy.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::swiglu_backward(s, dgu, dy, gu);
  by_float(dy.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T *pdy = dy.data<T>(), *pgu = gu.data<T>();
    T* pdgu = dgu.data<T>();
    s.parallel(rows, row_grain(cols), [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T *gate = pgu + r * 2 * cols, *up = gate + cols, *in = pdy + r * cols;
        T *dgate = pdgu + r * 2 * cols, *dup = dgate + cols;
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          simd::Vec<A> g = simd::load(gate + i, n), u = simd::load(up + i, n), d = simd::load(in + i, n);
          simd::Vec<A> p = simd::sigmoid<A>(g), silu = g * p;
          simd::store(dgate + i, d * u * (p + silu * (A(1) - p)), n);
          simd::store(dup + i, d * silu, n);
        });
      }
    });
  });
}

}  // namespace chiron
