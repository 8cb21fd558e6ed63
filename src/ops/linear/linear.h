#pragma once

#include "core/param.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// y = x W^T + bias + residual.  x: (T, I); w: (O, I); bias: (O) or absent; residual: (T, O) or absent; y: (T, O).
/// One float kind throughout. y may be the residual itself. One row or a few take a path for matrix-vector products.
void linear(Stream& s, Rows y, View x, View w, View bias, View residual, Stack& temp);

/// dx = dy W  (or dx +=).  dy: (T, O), w: (O, I), dx: (T, I), one float kind.
void linear_backward_input(Stream& s, Tensor dx, Accum accum, Rows dy, View w, Stack& temp);

/// dw = dy^T x  (or dw +=).  dy: (T, O), x: (T, I), one float kind; dw: (O, I) acc_dtype of it.
void linear_backward_weight(Stream& s, Tensor dw, Accum accum, Rows dy, View x, Stack& temp);

/// db = sum of the rows of dy (or db +=), in an order that threads do not change.  db: (O) acc_dtype(dy).
void linear_backward_bias(Stream& s, Tensor db, Accum accum, Rows dy, Stack& temp);

}  // namespace chiron
