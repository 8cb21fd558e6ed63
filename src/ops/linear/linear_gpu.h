#pragma once

#include "ops/linear/linear.h"

/// The GPU's side of the bias gradient; the rest of linear is products (ops/gemm/gemm_gpu.h).
namespace chiron::gpu {

/// The most ranges that the rows are cut into: enough blocks for any device, few enough to add up.
inline constexpr int64_t kBiasParts = 512;

/// parts (P, C) f32: sums of the columns of dy over P ranges of its rows.
void column_sums(Stream& s, Tensor parts, Rows dy);

}  // namespace chiron::gpu
