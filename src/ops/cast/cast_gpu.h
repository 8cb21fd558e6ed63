#pragma once

#include "ops/cast/cast.h"

/// The GPU's side of the op: arguments as in cast.h, checked already, on a stream that runs.
namespace chiron::gpu {

void cast(Stream& s, Tensor to, View from);

}  // namespace chiron::gpu
