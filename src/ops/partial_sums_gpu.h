#pragma once

#include "ops/partial_sums.h"

/// The GPU's side: arguments as in partial_sums.h, in f32, on a stream that runs.
namespace chiron::gpu {

void add_partial_sums(Stream& s, Tensor to, Accum accum, View parts);

}  // namespace chiron::gpu
