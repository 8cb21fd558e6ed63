#pragma once

#include "nn/ctx.h"
#include "ops/linear/linear.h"

namespace chiron {

/// How tensor parallelism cuts a linear layer: by output (each rank has some columns of y), by input (each rank has a
/// summand of y), or not at all.
enum class Split : uint8_t { none, column, row };

/// y = x W^T + b. Weights stay in the ParamStore; the layer knows only which.
struct Linear {
  Param w = kNoParam, b = kNoParam;
  Split split = Split::none;

  /// y = x W^T + b + residual (absent: none).
  void forward(Ctx& c, Rows y, View x, View residual = {}) const {
    bool first =
        split != Split::row || c.tp.rank() == 0;  // of the summands of a row split one brings bias and residual
    linear(c.s, y, x, c.weight(w), first ? c.weight(b) : View{}, first ? residual : View{}, c.temp);
    if (split == Split::row) c.tp.all_reduce(c.s, {y.at, y.dtype, {y.rows, y.cols}}, Reduce::sum);
  }

  /// dW and db from dy and x; returns dL/dx, on the scratch stack.
  Tensor backward(Ctx& c, View dy, View x) const {
    Tensor dx = c.scratch({x.rows(), x.cols()});
    linear_backward_input(c.s, dx, Accum::overwrite, dy, c.weight(w), c.temp);
    if (split == Split::column) c.tp.all_reduce(c.s, dx, Reduce::sum);
    weight_gradients(c, dy, x);
    return dx;
  }

 private:
  void weight_gradients(Ctx& c, View dy, View x) const {
    View up = c.hold(dy), in = c.hold(x);
    c.wgrad(w, [up, in](Stream& s, Tensor dw, Accum accum, Stack& temp) {
      linear_backward_weight(s, dw, accum, up, in, temp);
    });
    c.wgrad(b, [up](Stream& s, Tensor db, Accum accum, Stack& temp) { linear_backward_bias(s, db, accum, up, temp); });
  }
};

}  // namespace chiron
