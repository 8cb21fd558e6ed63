#pragma once

#include "nn/embedding.h"
#include "nn/linear.h"

namespace chiron {

/// The end of a branch: y = residual + dropout(x W^T + b).
struct ResidualLinear {
  Linear linear;
  DropoutLayer drop;

  void forward(Ctx& c, Tensor y, View x, View residual, const Batch& batch) const {
    if (drop.acts(c)) {
      linear.forward(c, y, x);
      dropout(c.s, y, y, residual, drop.draws(c, batch));
    } else {
      linear.forward(c, y, x, residual);
    }
  }

  /// d = dL/dy stays as it is: the residual's gradient. Returns dL/dx, on the scratch stack.
  Tensor backward(Ctx& c, View d, View x, const Batch& batch) const {
    if (!drop.acts(c)) return linear.backward(c, d, x);
    Tensor branch = c.scratch(d.shape);
    dropout_backward(c.s, branch, d, drop.draws(c, batch));
    return linear.backward(c, branch, x);
  }
};

}  // namespace chiron
