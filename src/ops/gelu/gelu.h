#pragma once

#include "core/stream.h"

namespace chiron {

/// Gaussian error linear unit (Hendrycks & Gimpel, 2016): exact (erf) or the tanh approximation (section 2).
enum class Gelu : uint8_t { tanh, erf };

/// y = gelu(x).  x, y: (T, F) one float kind.
void gelu(Stream& s, Tensor y, View x, Gelu kind);
/// dx = dy * gelu'(x).  dx may be dy.
void gelu_backward(Stream& s, Tensor dx, View dy, View x, Gelu kind);

}  // namespace chiron
