#include "ops/residual/residual_gpu.h"

#include "ops/elementwise.cuh"

namespace chiron::gpu {
namespace {

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

}  // namespace

void add(Stream& s, Tensor y, View a, View b) {
  by_gpu_float(y.dtype, [&]<class T>() { launch_elementwise<T, T, T>(s, "add_kernel", Add{}, y, a, b); });
}

}  // namespace chiron::gpu
