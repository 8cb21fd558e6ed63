#pragma once

#include "core/param.h"
#include "core/random.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// Kernels hold rows of this many elements on their stacks.
inline constexpr int64_t kMaxHeadDim = 256;

/// What may attend to what, and how. Query row t of a sequence sits at offset q_offset + t, key row j at k_offset + j;
/// query i sees keys j with  max(start, i - window + 1) <= j <= i  (offsets within the sequence).
struct AttentionShape {
  int64_t sequences = 0;  ///< B; q has B * q_length rows, k and v have B * k_length, sequence by sequence
  int64_t q_length = 0, k_length = 0;
  /// Head h reads kv head h / (heads / kv_heads); head_dim is at most kMaxHeadDim.
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;     ///< multiplies q k^T, above 0: usually 1 / sqrt(head_dim)
  int64_t window = 0;  ///< sliding window in tokens; 0 = none
  int64_t q_offset = 0, k_offset = 0;
  /// Offset within the sequence of the first token of each query's document: (B * q_length) i32, never falling within a
  /// sequence; absent = 0.
  View starts;
  /// Rows between one sequence's keys and the next one's; 0 = k_length. A cache has room for more than it holds.
  int64_t k_stride = 0;
};

/// Dropout on attention probabilities, absent with p = 0. A draw depends on (index of the query, offset of the key,
/// head) alone: Philox counter (index, k_offset + j / 4 of the aligned group of four keys, head, 0), word (k_offset +
/// j) % 4; the element is dropped if the word is below drop_threshold(p).
struct AttentionDropout {
  float p = 0;
  RandomKey key;
  View index;              ///< (B * q_length) i32: Batch::index of the queries
  int64_t first_head = 0;  ///< number of head 0 among all ranks' heads
};

/// o = softmax(scale * q k^T + mask) v per head; lse = log-sum-exp of the scaled, masked scores (natural logarithm).
/// q: (B * q_length, heads * D) rows, k, v: (B * k_length, kv_heads * D) rows, any ld; o: (B * q_length, heads * D);
/// lse: (B * q_length, heads) acc_dtype(q). A query that sees nothing gets o = 0, lse = -inf.
/// Works tile by tile (Dao et al., "FlashAttention-2", 2023, algorithm 1): memory linear in the lengths.
void attention(Stream& s, Rows o, Tensor lse, Rows q, Rows k, Rows v, const AttentionShape& shape,
               const AttentionDropout& dropout, Stack& temp);

/// dq, dk, dv = gradients (overwritten), from the stored o and lse (FlashAttention-2, algorithm 2, without atomics).
/// Shapes as in the forward op.
void attention_backward(Stream& s, Rows dq, Rows dk, Rows dv, Rows d_o, Rows q, Rows k, Rows v, Rows o, View lse,
                        const AttentionShape& shape, const AttentionDropout& dropout, Stack& temp);

/// Merges a second partial result over other keys into the first: (o, lse) <- softmax-weighted sum of both.
///   lse' = log(e^lse + e^lse2),  o' = o e^(lse - lse') + o2 e^(lse2 - lse')
/// o, o2: (T, heads * D); lse, lse2: (T, heads).
void attention_merge(Stream& s, Rows o, Tensor lse, Rows o2, View lse2, int64_t heads);

}  // namespace chiron
