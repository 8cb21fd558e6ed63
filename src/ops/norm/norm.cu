#include "core/launch.h"
#include "core/shard_blocks.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"
#include "ops/norm/norm_gpu.h"
#include "ops/norm/step_rules.h"

namespace chiron::gpu {
namespace {

constexpr int kThreads = 256, kAhead = 4;  // accesses under way at one time
static_assert(kShardBlock % (kThreads * kAhead * kVec<float>) == 0);

/// A block of threads per block of a shard, pieces of 16 bytes by thread. Bound by memory: reads the gradients once.
__global__ void __launch_bounds__(kThreads)
    squares_kernel(float* sums, const DeviceShard* shards, int num_shards, int64_t blocks) {
  SharedMemory memory;
  auto scratch = memory.take<float>(kMaxWarps);
  for (int64_t b = block(); b < blocks; b += num_blocks()) {
    const DeviceShard& shard = shards[find_shard(shards, num_shards, b)];
    const int64_t begin = (b - shard.first_block) * kShardBlock;
    const int64_t n = shard.numel - begin < kShardBlock ? shard.numel - begin : kShardBlock;
    const float* g = shard.grad + begin;
    float sum = 0;
    if (n == kShardBlock && is_aligned16(g)) {
      for (int64_t i = thread() * kVec<float>; i < n; i += kAhead * kThreads * kVec<float>) {
        Bits16 ahead[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) ahead[j] = load16(g + i + j * kThreads * kVec<float>);
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          const Floats<float> v = unpack<float>(ahead[j]);
          for (int e = 0; e < kVec<float>; ++e) sum += v[e] * v[e];
        }
      }
    } else {
      for (int64_t i = thread() * kVec<float>; i < n; i += kThreads * kVec<float>) {
        const Floats<float> v = load(g + i, n - i);
        for (int e = 0; e < kVec<float>; ++e) sum += v[e] * v[e];
      }
    }
    sum = block_reduce(sum, 0.0f, Sum{}, scratch);
    if (thread() == 0) sums[b] = sum;
  }
}

/// One block of threads. A total beyond float32 becomes infinity here, as does a square in a block: decide_step then
/// skips the update.
__global__ void __launch_bounds__(kMaxThreads) norm_kernel(StepScalars* scalars, const float* sums, int64_t n) {
  SharedMemory memory;
  auto scratch = memory.take<double>(kMaxWarps);
  double total = 0;
  for (int64_t i = thread(); i < n; i += num_threads()) total += static_cast<double>(sums[i]);
  total = block_reduce(total, 0.0, Sum{}, scratch);
  if (thread() == 0) scalars->sums[0] = static_cast<float>(total);
}

/// One thread works.
__global__ void __launch_bounds__(64) step_begin_kernel(StepScalars* scalars) {
  if (thread() == 0) begin_step(*scalars);
}
__global__ void __launch_bounds__(64) step_decide_kernel(StepScalars* scalars) {
  if (thread() == 0) decide_step(*scalars);
}

}  // namespace

void squared_norm(Stream& s, StepScalars* scalars, const Shards& shards, Tensor partial) {
  const int64_t blocks = partial.numel();
  CHECK(blocks == 0 || shards.table.present(), "shards without a table in the device's memory");
  if (blocks > 0)
    launch(s,
           {.kernel = "squares_kernel",
            .blocks = std::min<int64_t>(blocks, 1 << 20),
            .threads = kThreads,
            .shared = kTeamShared},
           squares_kernel, partial.data<float>(), shards.on_device(), static_cast<int>(shards.size()), blocks);
  launch(s, {.kernel = "norm_kernel", .threads = threads_for(blocks), .shared = shared_bytes<double>(kMaxThreads / 32)},
         norm_kernel, scalars, partial.data<float>(), blocks);
}

void step_begin(Stream& s, StepScalars* scalars) {
  launch(s, {.kernel = "step_begin_kernel", .threads = 64}, step_begin_kernel, scalars);
}

void step_decide(Stream& s, StepScalars* scalars) {
  launch(s, {.kernel = "step_decide_kernel", .threads = 64}, step_decide_kernel, scalars);
}

}  // namespace chiron::gpu
