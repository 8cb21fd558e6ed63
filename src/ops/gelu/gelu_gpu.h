#pragma once

#include "ops/gelu/gelu.h"

/// The GPU's side of the ops: arguments as in gelu.h, checked already, on a stream that runs.
namespace chiron::gpu {

void gelu(Stream& s, Tensor y, View x, Gelu kind);
void gelu_backward(Stream& s, Tensor dx, View dy, View x, Gelu kind);

}  // namespace chiron::gpu
