#pragma once

#include "core/param.h"
#include "core/stream.h"

namespace chiron {

/// to = sum over the first dimension of parts (or to +=), in order: how gradients of weights that all rows share are
/// completed. Kernels write one partial sum per fixed range of rows, so threads do not change a bit.
/// parts: (P, C), to: (C), f32 or f64. CPU only; part of the op that calls it, not an op of its own.
void add_partial_sums(Stream& s, Tensor to, Accum accum, View parts);

}  // namespace chiron
