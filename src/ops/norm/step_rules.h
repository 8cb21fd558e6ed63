#pragma once

#include <cmath>

namespace chiron {

/// A loss scale that changes starts here and stays within these limits (powers of two, so that it rounds nothing). A
/// step whose gradients overflow at the lowest is not finite for another reason.
inline constexpr float kFirstLossScale = 65536, kMinLossScale = 1, kMaxLossScale = 16777216;

// (Not by std::min and std::max: those take the constants' addresses, which are the host's.)
// What step_begin and step_decide do, for the CPU and for a GPU's kernel. V is StepScalars; these are templates because
// a compiler need not take the root for a constant expression.

template <class V>
constexpr void begin_step(V& v) {
  v.sums[0] = v.sums[1] = 0;
  v.token_scale = v.tokens > 0 ? v.loss_scale / static_cast<float>(v.tokens) : 0;
}

template <class V>
constexpr void decide_step(V& v) {
  const auto is_finite = [](float x) { return x - x == 0; };
  const bool counts = v.tokens > 0;
  v.loss = counts ? v.sums[1] / static_cast<float>(v.tokens) : 0;
  v.grad_norm = std::sqrt(v.sums[0]) / v.loss_scale;
  v.clip_factor = (v.max_norm > 0 && v.grad_norm > v.max_norm ? v.max_norm / v.grad_norm : 1) / v.loss_scale;
  const bool has_loss = counts && is_finite(v.loss);
  v.finite = has_loss && is_finite(v.grad_norm) && is_finite(v.clip_factor);
  const bool changes = v.scale_interval > 0;
  v.overflowed = has_loss && !v.finite && changes && v.loss_scale > kMinLossScale;
  if (v.overflowed) {
    v.loss_scale = v.loss_scale / 2 > kMinLossScale ? v.loss_scale / 2 : kMinLossScale;
    v.good_steps = 0;
  }
  if (!v.finite) return;
  ++v.applied;
  if (changes && ++v.good_steps >= v.scale_interval) {
    v.loss_scale = v.loss_scale * 2 < kMaxLossScale ? v.loss_scale * 2 : kMaxLossScale;
    v.good_steps = 0;
  }
}

}  // namespace chiron
