#include "ops/norm/norm.h"

#include "core/simd.h"
#include "ops/norm/norm_gpu.h"
#include "ops/norm/step_rules.h"

namespace chiron {

void squared_norm(Stream& s, StepScalars* scalars, const Shards& shards, Stack& temp) {
  int64_t elements = 0;
  for (const Shard& shard : shards) {
    CHECK(shard.grad.dtype == DType::f32 && shard.grad.numel() == shard.master.numel(), "gradient of parameter {}",
          shard.param);
    elements += shard.grad.numel();
  }
  Scope scope(temp);
  const int64_t blocks = num_blocks(shards);
  Tensor partial = temp.push(DType::f32, {blocks});
  Tensor all{0, DType::f32, {elements}};
  OpScope op(s, "squared_norm", {}, {all}, 2.0 * static_cast<double>(elements));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::squared_norm(s, scalars, shards, partial);
  float* sums = partial.data<float>();
  for_each_shard_block(s, shards, [=](int64_t block, const Shard& shard, int64_t begin, int64_t end) {
    const float* g = shard.grad.data<float>() + begin;
    simd::F32 sum{};
    simd::for_each_vector(end - begin, [&](int64_t i, auto n) {
      simd::F32 v = simd::load(g + i, n);
      sum += v * v;
    });
    sums[block] = simd::sum<float>(sum);
  });
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += static_cast<double>(sums[b]);
  // A total beyond float32 becomes infinity here, as does a square in a block: step_decide then skips the update.
  scalars->sums[0] = static_cast<float>(total);
}

void step_begin(Stream& s, StepScalars* scalars) {
  OpScope op(s, "step_begin", {}, {}, 0);
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::step_begin(s, scalars);
  begin_step(*scalars);
}

void step_decide(Stream& s, StepScalars* scalars) {
  OpScope op(s, "step_decide", {}, {}, 0);
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::step_decide(s, scalars);
  decide_step(*scalars);
}

}  // namespace chiron
