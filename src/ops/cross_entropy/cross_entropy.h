#pragma once

#include "core/batch.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// Softmax cross-entropy with label smoothing e (Szegedy et al., "Rethinking the Inception Architecture", 2015, section
/// 7):
///   loss[t] = lse - (1 - e) x[label] - (e / V) sum_v x[v],   dx[v] = scale (softmax[v] - (1 - e) [v = label] - e / V)
/// A label of kIgnore gives loss 0 and dx 0. With a vocabulary cut over ranks, `partial` runs on each rank's columns,
/// the ranks combine the statistics, and `finish` writes losses and gradients; with one rank `cross_entropy` does all.
struct CrossEntropyShape {
  int64_t vocab = 0;  ///< V of the whole vocabulary
  int64_t first = 0;  ///< number of this rank's first column
  float label_smoothing = 0;
};

/// The whole of it for a vocabulary that is not cut; arguments as below. A GPU reads the logits from memory once.
void cross_entropy(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View scale,
                   const CrossEntropyShape& shape, Stack& temp);

/// Per token, over this rank's columns: stat (T, 4) acc_dtype(logits) = max, sum of exp(x - max), x[label] (0 if
/// another rank has it), sum of x (only with label smoothing, else 0).  logits: (T, V of this rank); labels: (T) i32.
/// max is never below the lowest finite value, which is what it is where a rank has no columns or the label is kIgnore
/// (such rows are not read; their other statistics are 0). NaN or +inf among the logits gives a NaN loss.
void cross_entropy_partial(Stream& s, Tensor stat, Rows logits, View labels, const CrossEntropyShape& shape);

/// Combines `parts` statistics laid out (parts, T, 4) into stat (T, 4): max of max, sums rescaled and added in order.
void cross_entropy_combine(Stream& s, Tensor stat, View parts);

/// losses: (T) acc_dtype(logits). If `scale` is present (one f32 or f64 in device memory), the logits are overwritten
/// by their gradient times *scale, else they stay as they are. Columns of padding, [logits.cols, padded_cols) of each
/// row, get 0 with the gradient. A label outside [0, V) other than kIgnore was refused when the batch was made.
void cross_entropy_finish(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View stat,
                          View scale, const CrossEntropyShape& shape);

/// *sum += losses added in an order that never changes (CPU: blocks of a fixed size; float64 at the end).  losses: (T);
/// sum: one f32 or f64 scalar. `overwrite` starts from 0.
void sum_losses(Stream& s, Tensor sum, bool overwrite, View losses);

/// *count = number of labels that are not kIgnore, or *count +=.  count: one i32; labels: (T) i32.
void count_labels(Stream& s, Tensor count, bool overwrite, View labels);

}  // namespace chiron
