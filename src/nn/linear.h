#pragma once

#include "nn/tensor_rows.h"
#include "ops/linear/linear.h"
#include "ops/residual/residual.h"

namespace chiron {

/// How tensor parallelism cuts a linear layer: by output (each rank has some columns of y), by input (each rank has a
/// summand of y), or not at all.
enum class Split : uint8_t { none, column, row };

/// y = x W^T + b. Weights stay in the ParamStore; the layer knows only which.
struct Linear {
  Param w = kNoParam, b = kNoParam;
  Split split = Split::none;

  /// y = x W^T + b + residual (absent: none). The input of a column split and the output of a row split have this
  /// tensor rank's own rows, the other side a row for every token.
  void forward(Ctx& c, Tensor y, View x, View residual = {}) const {
    Scope scope(c.temp);
    const View in = split == Split::column ? all_rows(c, x, c.temp) : x;
    if (split != Split::row) return linear(c.s, y, in, c.weight(w), c.weight(b), residual, c.temp);
    // One of the summands brings the bias, and the residual if it has all rows.
    const bool first = c.tp.rank() == 0, cut = rows_are_cut(c);
    Tensor summand = summand_of(c, y);
    linear(c.s, summand, in, c.weight(w), first ? c.weight(b) : View{}, first && !cut ? residual : View{}, c.temp);
    sum_rows(c, y, summand);
    if (cut && residual.present()) add(c.s, y, y, residual);
  }

  /// dW and db from dy and x; returns dL/dx, on the scratch stack.
  Tensor backward(Ctx& c, View dy, View x) const {
    Tensor dx = c.scratch({x.rows(), x.cols()});
    Scope scope(c.temp);
    const View up = split == Split::row ? all_rows(c, dy, c.deferred ? c.saved : c.temp) : dy;
    Tensor summand = split == Split::column ? summand_of(c, dx) : dx;
    linear_backward_input(c.s, summand, Accum::overwrite, up, c.weight(w), c.temp);
    if (split == Split::column) sum_rows(c, dx, summand);
    weight_gradients(c, up, x);
    return dx;
  }

 private:
  void weight_gradients(Ctx& c, View dy, View x) const {
    View up = c.hold(dy), in = c.hold(x);
    // What is held of the input is this rank's rows: the others' come when they are needed.
    Communicator* gathers = split == Split::column && rows_are_cut(c) ? &c.tp : nullptr;
    c.wgrad(w, [up, in, gathers](Stream& s, Tensor dw, Accum accum, Stack& temp) {
      Scope scope(temp);
      linear_backward_weight(s, dw, accum, up, gathers ? gather_rows(s, *gathers, in, temp) : in, temp);
    });
    c.wgrad(b, [up](Stream& s, Tensor db, Accum accum, Stack& temp) { linear_backward_bias(s, db, accum, up, temp); });
  }
};

}  // namespace chiron
