#pragma once

#include "core/shard_blocks.h"
#include "core/step_scalars.h"

namespace chiron {

struct AdamWOptions {
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f;
};

/// AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2) over all shards in one pass:
///   g = grad * clip_factor;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
///   w -= lr * ( (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + decay * w ),   t = applied
/// Learning rate, clip factor, applied and finite come from `scalars` on the device; finite == 0 leaves everything as
/// it is. Weight decay touches only shards with `decay`. Writes the rounded compute copy where there is one.
void adamw(Stream& s, const StepScalars* scalars, const Shards& shards, const AdamWOptions& options);

}  // namespace chiron
