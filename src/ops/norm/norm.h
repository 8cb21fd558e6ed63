#pragma once

#include "core/shard_blocks.h"
#include "core/step_scalars.h"

namespace chiron {

/// scalars->sums[0] = sum of squares of all gradients: float32 partial sums over blocks of a fixed size, float64 over
/// the blocks, in an order that never changes.
void squared_norm(Stream& s, StepScalars* scalars, const Shards& shards, Stack& temp);

/// When a step starts, after the labels were counted (and the count summed over ranks): token_scale, and sums at 0.
void step_begin(Stream& s, StepScalars* scalars);

/// When gradients are complete and `sums` was summed over ranks: loss, grad_norm, clip_factor (Pascanu et al., "On the
/// difficulty of training recurrent neural networks", 2013, algorithm 1; factor max_norm / norm where the norm is
/// larger, else 1), finite, and applied + 1 if the update will be applied. With a scale_interval also the loss scale of
/// the next step (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2): doubled after so many applied
/// steps in a row, halved where the loss is finite and its gradients are not (step_rules.h has the limits).
void step_decide(Stream& s, StepScalars* scalars);

}  // namespace chiron
