#include "nn/context_keys.h"

namespace chiron {
namespace {

/// Calls f(row in rank order, row in sequence order, rows) for each chunk of a batch's sequences over the context
/// ranks.
template <class F>
void for_each_chunk(const Ctx& c, const Batch& batch, F&& f) {
  const int64_t ranks = c.cp.size(), rows = batch.length / 2;
  int64_t from = 0;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const int64_t chunk : {rank, 2 * ranks - 1 - rank})
      for (int64_t sequence = 0; sequence < batch.sequences; ++sequence, from += rows)
        f(from, (sequence * 2 * ranks + chunk) * rows, rows);
}

}  // namespace

Rows gather_context(Ctx& c, Rows own, const Batch& batch) {
  if (c.cp.size() == 1) return own;
  const int64_t rows = own.rows, first = c.cp.rank() * rows;
  Tensor whole = c.scratch({c.cp.size() * rows, own.cols});
  Scope scope(c.temp);
  Tensor parts = c.scratch(whole.shape), part = parts.slice(first, first + rows);
  c.s.copy(part, own);
  c.cp.all_gather(c.s, parts, part);
  for_each_chunk(c, batch, [&](int64_t from, int64_t at, int64_t n) {
    c.s.copy(whole.slice(at, at + n), parts.slice(from, from + n));
  });
  return whole;
}

void return_context(Ctx& c, Rows own, Tensor all, const Batch& batch) {
  const int64_t first = c.cp.rank() * own.rows;
  Scope scope(c.temp);
  Tensor parts = c.scratch(all.shape), part = parts.slice(first, first + own.rows);
  for_each_chunk(c, batch,
                 [&](int64_t to, int64_t at, int64_t n) { c.s.copy(parts.slice(to, to + n), all.slice(at, at + n)); });
  c.cp.reduce_scatter(c.s, part, parts, Reduce::sum);
  for (int64_t r = 0; r < own.rows; ++r)
    c.s.copy({own.slice(r, r + 1).at, own.dtype, {own.cols}}, part.slice(r, r + 1));
}

}  // namespace chiron
