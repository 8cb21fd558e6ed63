#include "nn/context_keys.h"

namespace chiron {
namespace {

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

Rows gather_context(Ctx& c, Rows own, const Batch& batch) {
  if (c.cp.size() == 1) return own;
  const int64_t first = c.cp.rank() * own.rows;
  Tensor whole = c.scratch({c.cp.size() * own.rows, own.cols});
  Scope scope(c.temp);
  Tensor parts = c.scratch(whole.shape), part = parts.slice(first, first + own.rows);
  c.s.copy(part, own);
  c.cp.all_gather(c.s, parts, part);
  for_each_chunk(c, batch, whole, parts, [&](Rows in, Rows of) { c.s.copy(in, of); });
  return whole;
}

void return_context(Ctx& c, Rows own, Tensor all, const Batch& batch) {
  const int64_t first = c.cp.rank() * own.rows;
  Scope scope(c.temp);
  Tensor parts = c.scratch(all.shape), part = parts.slice(first, first + own.rows);
  for_each_chunk(c, batch, all, parts, [&](Rows in, Rows of) { c.s.copy(of, in); });
  c.cp.reduce_scatter(c.s, part, parts, Reduce::sum);
  c.s.copy(own, part);
}

}  // namespace chiron
