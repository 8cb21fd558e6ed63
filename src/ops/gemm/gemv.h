#pragma once

#include "core/stream.h"

namespace chiron {

/// The most rows that gemv() takes.
inline constexpr int64_t kGemvRows = 4;

/// y = x W^T + bias + residual for up to kGemvRows rows: W is read once, and that is its bound. A row's bits depend
/// neither on the other rows nor on the number of threads, but they are not gemm's.
/// y: (R, N); x: (R, K); w: (N, K); bias: (N) or absent; residual: (R, N) or absent, may be y. One float kind. Tells no
/// trace.
void gemv(Stream& s, Rows y, View x, View w, View bias, View residual);

}  // namespace chiron
