#pragma once

#include "core/param.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// LayerNorm (Ba et al., "Layer Normalization", 2016, section 3):
///   y = (x - mean) * rstd * w + b,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)
/// x, y: (T, C) one float kind; w, b: (C) same kind, b may be absent; stat: (T, 2) acc_dtype(x): mean, rstd.
void layernorm(Stream& s, Tensor y, Tensor stat, View x, View w, View b, float eps);

/// dx += dL/dx (the residual stream's gradient is already there);  dw, db by their accum. Deterministic.
/// With g = dy * w and n = (x - mean) * rstd:  dL/dx = rstd * (g - mean(g) - n * mean(g * n)).
/// dw, db: (C) acc_dtype(x), absent where not trained.
void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum_w, Tensor db, Accum accum_b, View dy, View x,
                        View stat, View w, Stack& temp);

}  // namespace chiron
