#include "nn/attention.h"

#include <cmath>

#include "nn/kv_cache.h"

namespace chiron {
namespace {

/// Appends this batch's rows behind what a cache holds, sequence by sequence.
void append(Ctx& c, Tensor cache, Rows rows, const Batch& batch) {
  for (int64_t b = 0; b < batch.sequences; ++b) {
    const int64_t to = b * c.cache->capacity() + c.cache->length();
    c.s.copy(cache.slice(to, to + batch.length), rows.slice(b * batch.length, (b + 1) * batch.length));
  }
}

}  // namespace

AttentionShape Attention::shape(const Batch& batch) const {
  AttentionShape shape;
  shape.sequences = batch.sequences;
  shape.q_length = shape.k_length = batch.length;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  shape.window = window;
  shape.starts = batch.starts;
  return shape;
}

AttentionDropout Attention::draws(const Ctx& c, const Batch& batch) const {
  if (c.mode != Mode::train) return {};
  return {dropout, c.random(random_op), batch.index, c.tp.rank() * heads};
}

void Attention::forward(Ctx& c, Slot& o, Tensor qkv, const Batch& batch) const {
  AttentionShape shape = this->shape(batch);
  if (!c.cache) {
    attention(c.s, o.value, o.stat, q(qkv), k(qkv), v(qkv), shape, draws(c, batch), c.temp);
    return;
  }
  int block = c.at - 1;
  Tensor keys = c.cache->keys(block), values = c.cache->values(block);
  append(c, keys, k(qkv), batch);
  append(c, values, v(qkv), batch);
  shape.q_offset = c.cache->length();
  shape.k_length = c.cache->length() + batch.length;
  shape.k_stride = c.cache->capacity();
  attention(c.s, o.value, o.stat, q(qkv), keys, values, shape, {}, c.temp);
}

Tensor Attention::backward(Ctx& c, View d_o, Tensor qkv, const Slot& o, const Batch& batch) const {
  Tensor dqkv = c.scratch(qkv.shape);
  attention_backward(c.s, q(dqkv), k(dqkv), v(dqkv), d_o, q(qkv), k(qkv), v(qkv), o.value, o.stat, shape(batch),
                     draws(c, batch), c.temp);
  return dqkv;
}

}  // namespace chiron
