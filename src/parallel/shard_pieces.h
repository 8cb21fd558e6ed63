#pragma once

#include <algorithm>

#include "core/param.h"

namespace chiron {

/// Calls f(piece, first row within the piece, first row within the shard, rows) for each piece that a shard has rows
/// of.
template <class F>
void for_each_piece(const ParamSpec& spec, const Shard& shard, F&& f) {
  int64_t begin = 0;  // of the piece, in rows of the parameter
  const int64_t first = shard.first_row, last = first + shard.master.shape[0];
  for (const Piece& piece : spec.pieces) {
    const int64_t from = std::max(begin, first), to = std::min(begin + piece.rows, last);
    if (from < to) f(piece, from - begin, from - first, to - from);
    begin += piece.rows;
  }
}

}  // namespace chiron
