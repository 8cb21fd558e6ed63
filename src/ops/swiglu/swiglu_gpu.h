#pragma once

#include "ops/swiglu/swiglu.h"

/// The GPU's side of the ops: arguments as in swiglu.h, checked already, on a stream that runs.
namespace chiron::gpu {

void swiglu(Stream& s, Tensor y, View gu);
void swiglu_backward(Stream& s, Tensor dgu, View dy, View gu);

}  // namespace chiron::gpu
