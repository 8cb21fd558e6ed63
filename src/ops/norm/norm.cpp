#include "ops/norm/norm.h"

#include <cmath>

#include "core/shard_blocks.h"
#include "core/simd.h"

namespace chiron {

void squared_norm(Stream& s, StepScalars* scalars, std::span<const Shard> shards, Stack& temp) {
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
  const auto tokens = static_cast<float>(scalars->tokens);
  scalars->sums[0] = scalars->sums[1] = 0;
  scalars->token_scale = scalars->tokens > 0 ? scalars->loss_scale / tokens : 0;
}

void step_decide(Stream& s, StepScalars* scalars) {
  OpScope op(s, "step_decide", {}, {}, 0);
  if (!op) return;
  StepScalars& v = *scalars;
  const bool counts = v.tokens > 0;
  v.loss = counts ? v.sums[1] / static_cast<float>(v.tokens) : 0;
  v.grad_norm = std::sqrt(v.sums[0]) / v.loss_scale;
  v.clip_factor = (v.max_norm > 0 && v.grad_norm > v.max_norm ? v.max_norm / v.grad_norm : 1) / v.loss_scale;
  v.finite = counts && std::isfinite(v.loss) && std::isfinite(v.grad_norm) && std::isfinite(v.clip_factor);
  if (v.finite) ++v.applied;
}

}  // namespace chiron
