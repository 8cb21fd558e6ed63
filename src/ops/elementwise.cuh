#pragma once

#include <algorithm>

#include "core/launch.h"
#include "core/tensor.h"
#include "gpu/vec.h"

/// Kernels that compute each element from those at the same place.
namespace chiron::gpu {

inline constexpr int kElementwiseThreads = 256;

/// Elements that a thread takes at a time: as many as fill 16 bytes in the narrowest of the kinds.
template <class... T>
inline constexpr int kPiece = std::max({kVec<T>...});

/// kSize elements, widened. The first n of those at p, the others 0.
template <int kSize>
struct Piece {
  float x[kSize];

  template <class T>
  __device__ static Piece load(const T* p, int64_t n) {
    Piece piece;
    for (int i = 0; i < kSize; i += kVec<T>) {
      const Floats<T> v = gpu::load(p + i, n - i);
      for (int j = 0; j < kVec<T>; ++j) piece.x[i + j] = v[j];
    }
    return piece;
  }
  /// Rounds and stores the first n.
  template <class T>
  __device__ void store(T* p, int64_t n) const {
    for (int i = 0; i < kSize; i += kVec<T>) {
      Floats<T> v;
      for (int j = 0; j < kVec<T>; ++j) v[j] = x[i + j];
      gpu::store(p + i, v, n - i);
    }
  }
};

/// A thread per piece. Bound by memory: each array is read or written once.
template <class F, class Out, class... In>
__global__ void __launch_bounds__(kElementwiseThreads) elementwise_kernel(F f, int64_t n, Out* out, const In*... in) {
  constexpr int kSize = kPiece<Out, In...>;
  const int64_t step = num_blocks() * num_threads() * kSize;
  for (int64_t i = (block() * num_threads() + thread()) * kSize; i < n; i += step) {
    const auto compute = [&](const auto&... pieces) {
      Piece<kSize> y;
      for (int j = 0; j < kSize; ++j) y.x[j] = f(pieces.x[j]...);
      return y;
    };
    compute(Piece<kSize>::load(in + i, n - i)...).store(out + i, n - i);
  }
}

/// Pieces of 16 bytes that n elements make.
template <class T>
inline int64_t pieces_of(int64_t n) {
  return (n + kVec<T> - 1) / kVec<T>;
}

/// How a kernel is started that has a thread for each of `pieces`, as far as a grid goes.
inline Launch elementwise_launch(const char* kernel, int64_t pieces) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
  const int64_t blocks = (pieces + kElementwiseThreads - 1) / kElementwiseThreads;
  return {.kernel = kernel, .blocks = std::clamp<int64_t>(blocks, 1, kMaxBlocks), .threads = kElementwiseThreads};
}

/// out[i] = f(in[i]...), computed in float. `out` may be one of `in`.
template <class Out, class... In, class F, class... V>
void launch_elementwise(Stream& s, const char* kernel, F f, Tensor out, const V&... in) {
  constexpr int kSize = kPiece<Out, In...>;
  launch(s, elementwise_launch(kernel, (out.numel() + kSize - 1) / kSize), elementwise_kernel<F, Out, In...>, f,
         out.numel(), out.data<Out>(), in.template data<In>()...);
}

/// 1 / (1 + exp(-x))
__device__ inline float sigmoid(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  return 1.0f / (1.0f + fast_exp2(-kLog2e * x));
}

}  // namespace chiron::gpu
