#pragma once

#include "ops/attention/attention.h"

/// The GPU's side of the ops: arguments as in attention.h, checked already, on a stream that runs; and scratch memory.
namespace chiron::gpu {

/// Up to this many queries per sequence are taken one by one: tiles would be mostly empty.
inline constexpr int64_t kFewQueries = 4;
/// Parts into which the keys of few queries are cut, since a block for each head would leave most of the GPU idle.
/// Depends on room for keys rather than on their number: scratch memory does not grow while a cache fills.
int64_t attention_splits(const AttentionShape& shape);

/// partial: f32 (rows of q, heads, splits, head_dim + 1), needed if there is more than one split.
void attention(Stream& s, Rows o, Tensor lse, Rows q, Rows k, Rows v, const AttentionShape& shape,
               const AttentionDropout& dropout, Tensor partial);

/// What backward knows of each query beforehand: f32 (2, sequences * heads, queries rounded up to a multiple of 4).
Shape attention_query_stats(const AttentionShape& shape);
void attention_backward(Stream& s, Rows dq, Rows dk, Rows dv, Rows d_o, Rows q, Rows k, Rows v, Rows o, View lse,
                        const AttentionShape& shape, const AttentionDropout& dropout, Tensor query_stats);

void attention_merge(Stream& s, Rows o, Tensor lse, Rows o2, View lse2, int64_t heads);

}  // namespace chiron::gpu
