#pragma once

#include "nn/ctx.h"

/// Rows of the residual stream, one per token: every tensor rank has all of them or, under sequence parallelism, rank r
/// of n the r-th n-th part. Inside attention and MLP, and at the head, there is a row for every token.
namespace chiron {

inline bool rows_are_cut(const Ctx& c) { return c.sequence && c.tp.size() > 1; }

/// Of what has an element for every token, those that this rank has rows of.
inline View own_rows(const Ctx& c, View all) {
  if (!rows_are_cut(c)) return all;
  const int64_t n = all.shape[0] / c.tp.size();
  return all.slice(c.tp.rank() * n, (c.tp.rank() + 1) * n);
}

/// Every token's rows, on the stack `to`, from the tensor ranks' own.
inline View gather_rows(Stream& s, Communicator& tp, View own, Stack& to) {
  Tensor all = to.push(own.dtype, {own.rows() * tp.size(), own.cols()});
  tp.all_gather(s, all, own);
  return all;
}
inline View all_rows(Ctx& c, View own, Stack& to) { return rows_are_cut(c) ? gather_rows(c.s, c.tp, own, to) : own; }

/// Where this rank's summand of y goes, for every token: y itself, or scratch.
inline Tensor summand_of(Ctx& c, Tensor y) {
  return rows_are_cut(c) ? c.scratch({y.rows() * c.tp.size(), y.cols()}) : y;
}
/// y <- the sum over tensor ranks, in this rank's rows of it.
inline void sum_rows(Ctx& c, Tensor y, Tensor summand) {
  if (rows_are_cut(c))
    c.tp.reduce_scatter(c.s, y, summand, Reduce::sum);
  else
    c.tp.all_reduce(c.s, y, Reduce::sum);
}

}  // namespace chiron
