#include "nn/attention.h"

#include <cmath>

#include "nn/context_keys.h"
#include "nn/kv_cache.h"
#include "ops/residual/residual.h"

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

Attention::Queries Attention::run(const Ctx& c, const Batch& batch, int number) const {
  const int64_t ranks = c.cp.size(), length = batch.length / num_runs(c), rows = batch.sequences * length;
  const int64_t chunk = number == 0 ? c.cp.rank() : 2 * ranks - 1 - c.cp.rank();
  Queries queries{number * rows, (number + 1) * rows, {}, {}};
  auto part = [&](View all) { return all.present() ? all.slice(queries.begin, queries.end) : all; };
  queries.shape = {.sequences = batch.sequences,
                   .q_length = length,
                   .k_length = (chunk + 1) * length,
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_dim = head_dim,
                   .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                   .window = window,
                   .q_offset = chunk * length,
                   .starts = part(batch.starts),
                   .k_stride = ranks * batch.length};
  if (c.mode == Mode::train) queries.draws = {dropout, c.random(random_op), part(batch.index), c.tp.rank() * heads};
  return queries;
}

void Attention::forward(Ctx& c, Slot& o, Tensor qkv, const Batch& batch) const {
  if (!c.cache) {
    Scope scope(c.temp);
    const Rows keys = gather_context(c, this->keys(qkv), batch);
    for (int i = 0; i < num_runs(c); ++i) {
      const Queries at = run(c, batch, i);
      attention(c.s, Rows(o.value).slice(at.begin, at.end), o.stat.slice(at.begin, at.end),
                q(qkv).slice(at.begin, at.end), k(keys), v(keys), at.shape, at.draws, c.temp);
    }
    return;
  }
  int block = c.at - 1;
  Tensor cached_keys = c.cache->keys(block), values = c.cache->values(block);
  append(c, cached_keys, k(keys(qkv)), batch);
  append(c, values, v(keys(qkv)), batch);
  AttentionShape shape = run(c, batch, 0).shape;
  shape.q_offset = c.cache->length();
  shape.k_length = c.cache->length() + batch.length;
  shape.k_stride = c.cache->capacity();
  attention(c.s, o.value, o.stat, q(qkv), cached_keys, values, shape, {}, c.temp);
}

Tensor Attention::backward(Ctx& c, View d_o, Tensor qkv, const Slot& o, const Batch& batch) const {
  Tensor dqkv = c.scratch(qkv.shape);
  Scope scope(c.temp);
  const Rows keys = gather_context(c, this->keys(qkv), batch);
  const bool cut = c.cp.size() > 1;
  Tensor sum;  // of dk | dv over the runs, each of which writes those of the keys that it sees
  for (int i = 0; i < num_runs(c); ++i) {
    const Queries at = run(c, batch, i);
    auto part = [&](const Rows& all) { return all.slice(at.begin, at.end); };
    Tensor fresh;
    if (cut) {
      fresh = c.scratch({keys.rows, keys.cols});
      c.s.fill_zero(fresh);
    }
    const Rows dkeys = cut ? fresh : this->keys(dqkv);
    attention_backward(c.s, part(q(dqkv)), k(dkeys), v(dkeys), part(d_o), part(q(qkv)), k(keys), v(keys), part(o.value),
                       View(o.stat).slice(at.begin, at.end), at.shape, at.draws, c.temp);
    if (i == 0)
      sum = fresh;
    else
      add(c.s, sum, sum, fresh);
  }
  if (cut) return_context(c, this->keys(dqkv), sum, batch);
  return dqkv;
}

}  // namespace chiron
