#pragma once

#include "core/param.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// RMSNorm (Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019, eq. 4):
///   y = x * r * w,  r = 1 / sqrt(mean(x^2) + eps)
/// x, y: (T, C) one float kind; w: (C) same kind; rstd: (T) acc_dtype(x).
void rmsnorm(Stream& s, Tensor y, Tensor rstd, View x, View w, float eps);

/// dx += dL/dx (the residual stream's gradient is already there);  dw by `accum`. Deterministic.
/// With g = dy * w:  dL/dx = r * (g - x * r^2 * mean(g * x)),  dL/dw = sum over rows of dy * x * r.
/// dx, dy, x: (T, C) one kind; w: (C); rstd: (T); dw: (C) acc_dtype(x), absent if w is not trained.
void rmsnorm_backward(Stream& s, Tensor dx, Tensor dw, Accum accum, View dy, View x, View rstd, View w, Stack& temp);

}  // namespace chiron
