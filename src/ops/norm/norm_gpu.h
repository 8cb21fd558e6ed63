#pragma once

#include "ops/norm/norm.h"

/// The GPU's side of the ops: arguments as in norm.h, checked already, on a stream that runs.
namespace chiron::gpu {

/// partial: (num_blocks(shards)) f32.
void squared_norm(Stream& s, StepScalars* scalars, const Shards& shards, Tensor partial);
void step_begin(Stream& s, StepScalars* scalars);
void step_decide(Stream& s, StepScalars* scalars);

}  // namespace chiron::gpu
