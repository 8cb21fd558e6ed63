#pragma once

#include <span>

#include "core/param.h"
#include "core/stack.h"
#include "core/step_scalars.h"
#include "core/stream.h"

namespace chiron {

/// sums->sums[0] = sum of squares of all gradients: float32 partial sums over blocks of a fixed size, float64 over the
/// blocks, in order.
void squared_norm(Stream& s, StepScalars* scalars, std::span<const Shard> shards, Stack& temp);

/// When a step starts, after the labels were counted (and the count summed over ranks): token_scale, and sums at 0.
void step_begin(Stream& s, StepScalars* scalars);

/// When gradients are complete and `sums` was summed over ranks: loss, grad_norm, clip_factor (Pascanu et al., "On the
/// difficulty of training recurrent neural networks", 2013, algorithm 1; factor max_norm / norm where the norm is
/// larger, else 1), finite, and applied + 1 if the update will be applied.
void step_decide(Stream& s, StepScalars* scalars);

}  // namespace chiron
