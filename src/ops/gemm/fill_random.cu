#include "core/launch.h"
#include "gpu/gpu.h"
#include "ops/gemm/gemm_gpu.h"

namespace chiron::gpu {
namespace {

/// A thread per element. Bound by memory.
template <class T>
__global__ void __launch_bounds__(256) fill_random_kernel(T* to, int64_t n, uint32_t seed) {
  for (int64_t i = block() * num_threads() + thread(); i < n; i += num_blocks() * num_threads()) {
    // A hash of the index (the finisher of MurmurHash3); which numbers these are does not matter.
    auto x = static_cast<uint32_t>(i) ^ static_cast<uint32_t>(i >> 32) * 0x9e3779b9u ^ seed * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    to[i] = from_float<T>(static_cast<float>(static_cast<int32_t>(x)) * 0x1p-31f);
  }
}

}  // namespace

void fill_random(Stream& s, Tensor t, uint32_t seed) {
  if (t.numel() == 0) return;
  constexpr int64_t kMostBlocks = 1 << 14;
  const int64_t blocks = (t.numel() + 255) / 256;
  by_gpu_float(t.dtype, [&]<class T>() {
    launch(s, {.kernel = "fill_random_kernel", .blocks = blocks < kMostBlocks ? blocks : kMostBlocks},
           fill_random_kernel<T>, t.data<T>(), t.numel(), seed);
  });
}

}  // namespace chiron::gpu
