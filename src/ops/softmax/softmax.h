#pragma once

#include "core/stream.h"

namespace chiron {

/// y[t] = exp(x[t] * scale - max) / sum, row by row; -inf entries give 0, a row of only -inf gives zeros.
/// x, y: (T, C) one float kind; y may be x.
void softmax(Stream& s, Rows y, Rows x, float scale);

/// dx = scale * y * (dy - sum(dy * y)).  dx may be dy.
void softmax_backward(Stream& s, Rows dx, Rows dy, Rows y, float scale);

}  // namespace chiron
