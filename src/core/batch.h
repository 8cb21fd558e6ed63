#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace chiron {

/// A label that does not count.
inline constexpr int32_t kIgnore = -100;

/// Ids and the stable permutation that sorts them: what an embedding's gradient needs to sum rows in a fixed order.
struct Ids {
  View ids;    ///< (T) i32
  View order;  ///< (T) i32: ids[order[i]] is non-decreasing, equal ids in ascending position
};

/// One micro-batch on the device, already cut to what this rank sees. T = sequences * length token rows, sequence by
/// sequence. All arrays are i32.
///
/// Over n > 1 context ranks each sequence is cut into 2 n equal chunks. Rank r has chunks r and 2 n - 1 - r, which
/// under a causal mask are the same work on each; rows are the one chunk of every sequence, then the other chunk of
/// every sequence. `length` counts both; what a token is told of its place is of the whole sequence.
struct Batch {
  int64_t sequences = 0, length = 0;
  Ids tokens;     ///< what to embed
  Ids positions;  ///< position within the document (learned and rotary positions)
  View labels;    ///< (T) the next token, kIgnore where there is none
  View starts;    ///< (T) offset, within its sequence, of the first token of the token's document; absent: all 0
  /// (T) number of the token in the step: sample * length of a whole sequence + offset, over all ranks and
  /// micro-batches, so that no layout and no cut of the batch changes a random draw.
  View index;

  int64_t rows() const { return sequences * length; }
};

}  // namespace chiron
