#pragma once

#include "ops/rmsnorm/rmsnorm.h"

/// The GPU's side of the op: arguments as in rmsnorm.h, checked already, on a stream that runs.
namespace chiron::gpu {

void rmsnorm(Stream& s, Tensor y, Tensor rstd, View x, View w, float eps);

}  // namespace chiron::gpu
