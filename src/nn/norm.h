#pragma once

#include "nn/ctx.h"
#include "ops/layernorm/layernorm.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace chiron {

struct LayerNorm {
  Param w = kNoParam, b = kNoParam;
  float eps = 1e-5f;
  static constexpr int64_t kStatCols = 2;

  void forward(Ctx& c, Slot& y, View x) const { layernorm(c.s, y.value, y.stat, x, c.weight(w), c.weight(b), eps); }
  /// d += dL/dx.  y: the slot that forward filled.
  void backward(Ctx& c, Tensor d, View dy, View x, const Slot& y) const {
    Accum aw, ab;
    Tensor dw = c.grad(w, aw), db = c.grad(b, ab);
    layernorm_backward(c.s, d, dw, aw, db, ab, dy, x, y.stat, c.weight(w), c.temp);
  }
};

struct RmsNorm {
  Param w = kNoParam;
  float eps = 1e-6f;
  static constexpr int64_t kStatCols = 1;

  void forward(Ctx& c, Slot& y, View x) const { rmsnorm(c.s, y.value, y.stat, x, c.weight(w), eps); }
  void backward(Ctx& c, Tensor d, View dy, View x, const Slot& y) const {
    Accum aw;
    Tensor dw = c.grad(w, aw);
    rmsnorm_backward(c.s, d, dw, aw, dy, x, y.stat, c.weight(w), c.temp);
  }
};

}  // namespace chiron
