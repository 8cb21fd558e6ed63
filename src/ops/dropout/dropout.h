#pragma once

#include "core/random.h"
#include "core/stream.h"

namespace chiron {

/// Dropout (Srivastava et al., 2014), scaled at training time: keeps x / (1 - p) with probability 1 - p. A draw depends
/// on (index of the token, column) alone: Philox counter (index, column / 4, 0, 0), word column % 4, dropped if the
/// word is below drop_threshold(p). p in (0, 1).
struct Dropout {
  float p = 0;
  RandomKey key;
  View index;                ///< (T) i32: Batch::index
  int64_t first_column = 0;  ///< number of column 0 among all ranks' columns
};

/// y = dropout(x) + residual; residual may be absent, y may be x or residual.  x, y, residual: (T, C) one float kind.
void dropout(Stream& s, Tensor y, View x, View residual, const Dropout& d);
/// dx = dropout(dy) with the same draws.  dx may be dy.
void dropout_backward(Stream& s, Tensor dx, View dy, const Dropout& d);

}  // namespace chiron
