#include "ops/cast/cast_gpu.h"

#include "ops/elementwise.cuh"

namespace chiron::gpu {
namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

void cast(Stream& s, Tensor to, View from) {
  by_gpu_float(to.dtype, [&]<class To>() {
    by_gpu_float(from.dtype, [&]<class From>() { launch_elementwise<To, From>(s, "cast_kernel", Same{}, to, from); });
  });
}

}  // namespace chiron::gpu
