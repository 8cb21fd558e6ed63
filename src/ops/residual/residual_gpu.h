#pragma once

#include "ops/residual/residual.h"

/// The GPU's side of the op: arguments as in residual.h, checked already, on a stream that runs.
namespace chiron::gpu {

void add(Stream& s, Tensor y, View a, View b);

}  // namespace chiron::gpu
