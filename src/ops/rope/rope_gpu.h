#pragma once

#include "ops/rope/rope.h"

/// The GPU's side of the op: arguments as in rope.h, checked already, on a stream that runs.
namespace chiron::gpu {

void rope(Stream& s, Rows x, View positions, View inv_freq, int64_t heads, bool inverse);

}  // namespace chiron::gpu
