#include "nn/attention.h"

#include <cmath>

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

/// Calls f(in, of) for each chunk of the context ranks: where it lies in `whole`, which has sequence by sequence, and
/// in `parts`, which has rank by rank, as (sequences, a chunk's elements).
template <class F>
void for_each_chunk(const Ctx& c, const Batch& batch, Tensor whole, Tensor parts, F&& f) {
  const int64_t ranks = c.cp.size(), n = whole.numel() / (batch.sequences * 2 * ranks);
  const Rows in = whole.reshape({batch.sequences, 2 * ranks * n}), of = parts.reshape({2 * ranks * batch.sequences, n});
  int64_t row = 0;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const int64_t chunk : {rank, 2 * ranks - 1 - rank}) {
      f(in.columns(chunk * n, n), of.slice(row, row + batch.sequences));
      row += batch.sequences;
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

Rows Attention::gather_keys(Ctx& c, Tensor qkv, const Batch& batch) const {
  const int64_t ranks = c.cp.size(), rows = qkv.rows();
  if (ranks == 1) return keys(qkv);
  Tensor whole = c.scratch({ranks * rows, 2 * kv_width()});
  Scope scope(c.temp);
  Tensor parts = c.scratch(whole.shape), own = parts.slice(c.cp.rank() * rows, (c.cp.rank() + 1) * rows);
  c.s.copy(own, keys(qkv));
  c.cp.all_gather(c.s, parts, own);
  for_each_chunk(c, batch, whole, parts, [&](Rows in, Rows of) { c.s.copy(in, of); });
  return whole;
}

void Attention::return_keys(Ctx& c, Tensor dqkv, Tensor dkeys, const Batch& batch) const {
  const int64_t rows = dqkv.rows();
  Tensor parts = c.scratch(dkeys.shape), own = parts.slice(c.cp.rank() * rows, (c.cp.rank() + 1) * rows);
  for_each_chunk(c, batch, dkeys, parts, [&](Rows in, Rows of) { c.s.copy(of, in); });
  c.cp.reduce_scatter(c.s, own, parts, Reduce::sum);
  c.s.copy(keys(dqkv), own);
}

void Attention::forward(Ctx& c, Slot& o, Tensor qkv, const Batch& batch) const {
  if (!c.cache) {
    Scope scope(c.temp);
    const Rows keys = gather_keys(c, qkv, batch);
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
  const Rows keys = gather_keys(c, qkv, batch);
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
  if (cut) return_keys(c, dqkv, sum, batch);
  return dqkv;
}

}  // namespace chiron
