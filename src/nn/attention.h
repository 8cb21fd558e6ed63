#pragma once

#include "nn/ctx.h"
#include "ops/attention/attention.h"
#include "ops/rope/rope.h"

namespace chiron {

/// Rotary position embedding of q and k inside a qkv tensor.
struct Rope {
  Param inv_freq = kNoParam;  ///< a constant of the ParamStore: (head_dim / 2) f32

  void rotate(Ctx& c, Tensor qkv, int64_t heads, int64_t kv_heads, int64_t head_dim, const Batch& batch,
              bool inverse) const {
    int64_t rotated = heads + kv_heads;  // q and k lie side by side
    rope(c.s, Rows(qkv).columns(0, rotated * head_dim), batch.positions.ids, c.params.weight(inv_freq, Form::master),
         rotated, inverse);
  }
};

/// Causal attention on qkv = (q | k | v), (T, (heads + 2 kv_heads) * head_dim). Heads are cut over the tensor axis.
/// Over context ranks, keys and values of whole sequences are gathered, and their gradients summed where they came
/// from.
struct Attention {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  ///< of this rank
  int64_t window = 0;
  float dropout = 0;
  uint32_t random_op = 0;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }

  void forward(Ctx& c, Slot& o, Tensor qkv, const Batch& batch) const;
  /// Returns dL/dqkv, on the scratch stack.
  Tensor backward(Ctx& c, View d_o, Tensor qkv, const Slot& o, const Batch& batch) const;

 private:
  /// Rows [begin, end) of a batch: queries that stand side by side in their sequences, and what they see.
  struct Queries {
    int64_t begin, end;
    AttentionShape shape;
    AttentionDropout draws;
  };
  static int num_runs(const Ctx& c) { return c.cp.size() > 1 ? 2 : 1; }
  Queries run(const Ctx& c, const Batch& batch, int number) const;
  Rows q(Tensor qkv) const { return Rows(qkv).columns(0, q_width()); }
  Rows keys(Tensor qkv) const { return Rows(qkv).columns(q_width(), 2 * kv_width()); }
  Rows k(const Rows& keys) const { return keys.columns(0, kv_width()); }
  Rows v(const Rows& keys) const { return keys.columns(kv_width(), kv_width()); }
};

}  // namespace chiron
