#pragma once

#include "core/stream.h"

namespace chiron {

/// SwiGLU (Shazeer, "GLU Variants Improve Transformer", 2020, eq. 5) on gate and up side by side:
///   y = g * sigmoid(g) * u,  gu = (g | u).  gu: (T, 2F); y: (T, F), one float kind.
void swiglu(Stream& s, Tensor y, View gu);
/// dgu = (dL/dg | dL/du).  dgu: (T, 2F), may be gu.
void swiglu_backward(Stream& s, Tensor dgu, View dy, View gu);

}  // namespace chiron
