#pragma once

#include "nn/tensor_rows.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"

namespace chiron {

/// Dropout of a layer's output; nothing outside training or with p = 0.
struct DropoutLayer {
  float p = 0;
  uint32_t random_op = 0;

  bool acts(const Ctx& c) const { return p > 0 && c.mode == Mode::train; }
  Dropout draws(const Ctx& c, const Batch& batch) const {
    return {p, c.random(random_op), own_rows(c, batch.index), 0};
  }
};

/// x = token embedding (+ learned position embedding), dropped out.
struct Embedding {
  Param tokens = kNoParam, positions = kNoParam;
  DropoutLayer drop;

  void forward(Ctx& c, Tensor y, const Batch& batch) const {
    Scope scope(c.temp);
    View w = c.weight(tokens);
    Tensor summand = summand_of(c, y);
    embedding(c.s, summand, Accum::overwrite, batch.tokens.ids, w, first_row(c, w));
    sum_rows(c, y, summand);
    if (positions != kNoParam) embedding(c.s, y, Accum::add, own_rows(c, batch.positions.ids), c.weight(positions), 0);
    if (drop.acts(c)) dropout(c.s, y, y, {}, drop.draws(c, batch));
  }

  /// d is changed: the gradient behind the dropout.
  void backward(Ctx& c, Tensor d, const Batch& batch) const {
    if (drop.acts(c)) dropout_backward(c.s, d, d, drop.draws(c, batch));
    Scope scope(c.temp);
    const View all = all_rows(c, d, c.temp);
    scatter(c, tokens, all, batch.tokens, true);
    scatter(c, positions, all, batch.positions, false);
  }

 private:
  /// Rows of the token table are cut over the tensor axis.
  static int64_t first_row(const Ctx& c, View w) { return c.tp.rank() * w.shape[0]; }
  static void scatter(Ctx& c, Param p, View d, const Ids& ids, bool cut) {
    Accum accum;
    Tensor dw = c.grad(p, accum);
    if (dw.present()) embedding_backward(c.s, dw, accum, d, ids, cut ? first_row(c, dw) : 0, c.temp);
  }
};

}  // namespace chiron
