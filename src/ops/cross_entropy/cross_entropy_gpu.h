#pragma once

#include "ops/cross_entropy/cross_entropy.h"

/// The GPU's side of the ops: arguments as in cross_entropy.h, checked already, on a stream that runs; `scale` is f32.
namespace chiron::gpu {

void cross_entropy(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View scale,
                   const CrossEntropyShape& shape);
void cross_entropy_partial(Stream& s, Tensor stat, Rows logits, View labels, const CrossEntropyShape& shape);
void cross_entropy_combine(Stream& s, Tensor stat, View parts);
void cross_entropy_finish(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View stat,
                          View scale, const CrossEntropyShape& shape);
void sum_losses(Stream& s, Tensor sum, bool overwrite, View losses);
void count_labels(Stream& s, Tensor count, bool overwrite, View labels);

}  // namespace chiron::gpu
