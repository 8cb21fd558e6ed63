#include "core/launch.h"
#include "gpu/gpu.h"
#include "ops/partial_sums_gpu.h"

namespace chiron::gpu {
namespace {

constexpr int kCols = 32, kThreads = 512, kGroups = kThreads / kCols;

/// A block has kCols columns, each of its groups of threads a range of the parts; then the groups' sums are added, all
/// in order. Bound by memory.
__global__ void __launch_bounds__(kThreads)
    add_partial_sums_kernel(float* to, const float* parts, int64_t num_parts, int64_t cols, bool add) {
  SharedMemory memory;
  Shared<float> sums = memory.take<float>(kThreads);
  const int group = thread() / kCols;
  const int64_t col = block() * kCols + thread() % kCols;
  const int64_t range = (num_parts + kGroups - 1) / kGroups, begin = group * range,
                end = begin + range < num_parts ? begin + range : num_parts;
  float sum = 0;
  if (col < cols)
    for (int64_t p = begin; p < end; ++p) sum += parts[p * cols + col];
  sums[thread()] = sum;
  sync_block();
  if (group > 0 || col >= cols) return;
  for (int g = 1; g < kGroups; ++g) sum += sums[g * kCols + thread()];
  to[col] = add ? to[col] + sum : sum;
}

}  // namespace

void add_partial_sums(Stream& s, Tensor to, Accum accum, View parts) {
  const int64_t cols = to.numel();
  if (cols == 0) return;
  launch(s,
         {.kernel = "add_partial_sums_kernel",
          .blocks = (cols + kCols - 1) / kCols,
          .threads = kThreads,
          .shared = shared_bytes<float>(kThreads)},
         add_partial_sums_kernel, to.data<float>(), parts.data<float>(), parts.shape[0], cols, accum == Accum::add);
}

}  // namespace chiron::gpu
