#pragma once

#include <algorithm>

#include "core/param.h"
#include "core/stream.h"

namespace chiron {

/// Rows of one partial sum of the norms' backward passes: the same for any number of threads. On a GPU a block sums a
/// range, so there are some hundred ranges.
inline int64_t rows_per_partial_sum(const Stream& s, int64_t rows) {
  constexpr int64_t kCpu = 32, kFewestOnGpu = 8, kMostRangesOnGpu = 512;
  return s.on_gpu() ? std::max(kFewestOnGpu, (rows + kMostRangesOnGpu - 1) / kMostRangesOnGpu) : kCpu;
}

/// to = sum over the first dimension of parts (or to +=), in order: how gradients of weights that all rows share are
/// completed. Kernels write one partial sum per fixed range of rows, so threads do not change a bit.
/// parts: (P, C), to: (C), f32 or f64. Part of the op that calls it, not an op of its own.
void add_partial_sums(Stream& s, Tensor to, Accum accum, View parts);

}  // namespace chiron
