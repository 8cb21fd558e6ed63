#pragma once

#include "ops/layernorm/layernorm.h"

/// The GPU's side of the ops: arguments as in layernorm.h, checked already, on a stream that runs.
namespace chiron::gpu {

void layernorm(Stream& s, Tensor y, Tensor stat, View x, View w, View b, float eps);
/// parts_w, parts_b: (P, C), scratch memory for the sums over ranges of rows_per_partial_sum(); absent as dw, db are.
void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum_w, Tensor db, Accum accum_b, View dy, View x,
                        View stat, View w, Tensor parts_w, Tensor parts_b);

}  // namespace chiron::gpu
