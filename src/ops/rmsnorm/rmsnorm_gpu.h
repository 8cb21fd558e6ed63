#pragma once

#include "ops/rmsnorm/rmsnorm.h"

/// The GPU's side of the ops: arguments as in rmsnorm.h, checked already, on a stream that runs.
namespace chiron::gpu {

void rmsnorm(Stream& s, Tensor y, Tensor rstd, View x, View w, float eps);
/// partial: (P, C), scratch memory for the sums over ranges of rows_per_partial_sum(); absent as dw is.
void rmsnorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum, View dy, View x, View rstd, View w, Tensor partial);

}  // namespace chiron::gpu
