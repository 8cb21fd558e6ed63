#pragma once

#include "ops/dropout/dropout.h"

/// The GPU's side of both ops: arguments as in dropout.h, checked already, on a stream that runs.
namespace chiron::gpu {

void dropout(Stream& s, Tensor y, View x, View residual, const Dropout& d);

}  // namespace chiron::gpu
