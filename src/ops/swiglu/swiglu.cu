#include "ops/swiglu/swiglu_gpu.h"

#include "ops/elementwise.cuh"

namespace chiron::gpu {
namespace {

/// A thread per piece of a row of y. Bound by memory.
template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    swiglu_kernel(T* y, const T* gu, int64_t pieces, int64_t row_pieces, int64_t cols) {
  for (int64_t p = block() * num_threads() + thread(); p < pieces; p += num_blocks() * num_threads()) {
    const int64_t row = p / row_pieces, i = (p - row * row_pieces) * kVec<T>;
    const T* gate = gu + row * 2 * cols + i;
    const Floats<T> g = load(gate, cols - i), u = load(gate + cols, cols - i);
    Floats<T> out;
    for (int j = 0; j < kVec<T>; ++j) out[j] = g[j] * sigmoid(g[j]) * u[j];
    store(y + row * cols + i, out, cols - i);
  }
}

/// The same. dgu may be gu: a thread reads its piece of both halves before it writes them.
template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    swiglu_backward_kernel(T* dgu, const T* dy, const T* gu, int64_t pieces, int64_t row_pieces, int64_t cols) {
  for (int64_t p = block() * num_threads() + thread(); p < pieces; p += num_blocks() * num_threads()) {
    const int64_t row = p / row_pieces, i = (p - row * row_pieces) * kVec<T>, at = row * 2 * cols + i;
    const Floats<T> g = load(gu + at, cols - i), u = load(gu + at + cols, cols - i),
                    d = load(dy + row * cols + i, cols - i);
    Floats<T> dg, du;
    for (int j = 0; j < kVec<T>; ++j) {
      const float sigma = sigmoid(g[j]), silu = g[j] * sigma;
      dg[j] = d[j] * u[j] * (sigma + silu * (1.0f - sigma));
      du[j] = d[j] * silu;
    }
    store(dgu + at, dg, cols - i);
    store(dgu + at + cols, du, cols - i);
  }
}

}  // namespace

void swiglu(Stream& s, Tensor y, View gu) {
  by_gpu_float(y.dtype, [&]<class T>() {
    const int64_t row_pieces = pieces_of<T>(y.cols()), pieces = y.rows() * row_pieces;
    launch(s, elementwise_launch("swiglu_kernel", pieces), swiglu_kernel<T>, y.data<T>(), gu.data<T>(), pieces,
           row_pieces, y.cols());
  });
}

void swiglu_backward(Stream& s, Tensor dgu, View dy, View gu) {
  by_gpu_float(dy.dtype, [&]<class T>() {
    const int64_t row_pieces = pieces_of<T>(dy.cols()), pieces = dy.rows() * row_pieces;
    launch(s, elementwise_launch("swiglu_backward_kernel", pieces), swiglu_backward_kernel<T>, dgu.data<T>(),
           dy.data<T>(), gu.data<T>(), pieces, row_pieces, dy.cols());
  });
}

}  // namespace chiron::gpu
