#pragma once

#include "nn/norm.h"
#include "nn/tensor_rows.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"

namespace chiron {

/// The last unit: final norm, projection on the vocabulary, loss. In training, forward computes the loss, dL/dx and all
/// weight gradients at once, since the logits are needed for both and are too large to keep: they are overwritten by
/// their gradient, `chunk` tokens at a time.
template <class Norm>
struct Head {
  Norm norm;
  Param w = kNoParam;  ///< (padded vocabulary, C); may be tied to the embedding
  int64_t vocab = 0;   ///< without padding
  float label_smoothing = 0;
  int64_t chunk = 0;  ///< tokens per slice of logits; 0: all at once

  enum SlotId { kDx };

  /// Adds the sum of token losses to scalars->sums[1] and fills the slot: value dL/dx, in `mode` train only.
  void forward(Ctx& c, Saved& saved) const {
    if (c.mode == Mode::train) {
      c.memo(saved, kDx, [&](Slot& dx) { losses(c, saved.x, *saved.batch, dx.value); });
    } else {
      losses(c, saved.x, *saved.batch, {});
    }
  }

  void backward(Ctx& c, Tensor d, Saved& saved) const { c.s.copy(d, saved[kDx].value); }

  /// Logits of every token, without a loss. logits: (T, vocabulary of this rank, padding included).
  void logits(Ctx& c, Tensor out, View x) const {
    Scope scope(c.temp);
    Slot h = normed(c, x);
    linear(c.s, out, all_rows(c, h.value, c.temp), c.weight(w), {}, {}, c.temp);
  }

 private:
  Slot normed(Ctx& c, View x) const {
    Slot h;
    h.value = c.scratch({x.rows(), x.cols()});
    h.stat = c.temp.push(acc_dtype(c.compute), {x.rows(), Norm::kStatCols});
    norm.forward(c, h, x);
    return h;
  }

  void losses(Ctx& c, View x, const Batch& batch, Tensor dx) const {
    Scope scope(c.temp);
    Slot h = normed(c, x);
    const View all = all_rows(c, h.value, c.temp);
    const int64_t rows = all.rows();
    Tensor dh, summand;
    if (dx.present()) {
      dh = c.scratch({x.rows(), x.cols()});
      summand = summand_of(c, dh);
    }
    Tensor loss = c.temp.push(acc_dtype(c.compute), {rows});
    const int64_t step = chunk > 0 && chunk < rows ? chunk : rows;
    for (int64_t begin = 0; begin < rows; begin += step) {
      int64_t end = begin + step < rows ? begin + step : rows;
      slice(c, all.slice(begin, end), batch.labels.slice(begin, end), loss.slice(begin, end),
            dx.present() ? summand.slice(begin, end) : Tensor{});
    }
    sum_losses(c.s, {reinterpret_cast<uintptr_t>(&c.scalars->sums[1]), DType::f32, {1}}, false, loss);
    if (!dx.present()) return;
    sum_rows(c, dh, summand);
    c.s.fill_zero(dx);  // the norm's backward adds: nothing else feeds the last block's output
    norm.backward(c, dx, dh, x, h);
  }

  /// Loss of some tokens, their part of dW, and dh, of which each tensor rank has a summand.
  void slice(Ctx& c, View h, View labels, Tensor loss, Tensor dh) const {
    Scope scope(c.temp);
    View weight = c.weight(w);
    const int64_t rows = h.rows(), padded = weight.shape[0];
    const CrossEntropyShape shape{vocab, std::min(c.tp.rank() * padded, vocab), label_smoothing};
    Tensor logits = c.scratch({rows, padded});
    linear(c.s, logits, h, weight, {}, {}, c.temp);
    Rows valid = Rows(logits).columns(0, std::min(padded, vocab - shape.first));
    View scale = dh.present() ? View{reinterpret_cast<uintptr_t>(&c.scalars->token_scale), DType::f32, {1}} : View{};
    if (c.tp.size() > 1) {
      Tensor stat = c.temp.push(acc_dtype(c.compute), {rows, 4});
      Tensor parts = c.temp.push(stat.dtype, {c.tp.size(), rows, 4});
      cross_entropy_partial(c.s, stat, valid, labels, shape);
      c.tp.all_gather(c.s, parts, stat);
      cross_entropy_combine(c.s, stat, parts);
      cross_entropy_finish(c.s, loss, valid, padded, labels, stat, scale, shape);
    } else {
      cross_entropy(c.s, loss, valid, padded, labels, scale, shape, c.temp);
    }
    if (!dh.present()) return;
    linear_backward_input(c.s, dh, Accum::overwrite, logits, weight, c.temp);
    Accum accum;
    Tensor dw = c.grad(w, accum);
    if (dw.present()) linear_backward_weight(c.s, dw, accum, logits, h, c.temp);
  }
};

}  // namespace chiron
