#pragma once

#include "ops/softmax/softmax.h"

/// The GPU's side of the ops: arguments as in softmax.h, checked already, on a stream that runs.
namespace chiron::gpu {

void softmax(Stream& s, Rows y, Rows x, float scale);
void softmax_backward(Stream& s, Rows dx, Rows dy, Rows y, float scale);

}  // namespace chiron::gpu
