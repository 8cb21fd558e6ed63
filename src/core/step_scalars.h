#pragma once

#include <cstdint>

namespace chiron {

/// All that changes from step to step, in one struct in device memory. The host writes the first group before a step;
/// ops on the device write the others and the trainer reads them one step later.
struct StepScalars {
  // Written by the host.
  uint64_t seed = 0;  ///< the run's seed
  int64_t step = 0;   ///< number of the step, from 0; chooses the random streams
  float learning_rate = 0;
  float max_norm = 0;          ///< clip gradients to this global norm; 0 = no clipping
  int32_t scale_interval = 0;  ///< applied steps after which the loss scale grows; 0: it never changes

  // Written on the device during a step.
  int32_t tokens = 0;      ///< labels that count, over all micro-batches and ranks
  float token_scale = 0;   ///< loss_scale / tokens, 0 if no label counts: the upstream gradient of each token's loss
  float sums[2] = {0, 0};  ///< [0] squared gradient norm (of scaled gradients), [1] sum of token losses
  float loss = 0;          ///< mean over the labels that count
  float grad_norm = 0;     ///< before clipping, unscaled
  float clip_factor = 0;   ///< gradients are multiplied by this: clipping and 1 / loss_scale in one
  int32_t finite = 0;      ///< 1 if loss and norm are finite and some label counts: the update is applied
  int32_t overflowed = 0;  ///< 1 if it is not, and a smaller loss scale may help: the loss is finite

  // Carried over from step to step, part of the checkpoint. The host sets the scale when a run starts.
  float loss_scale = 1;    ///< multiplies the loss before backward; of the next step once a step is decided
  int32_t good_steps = 0;  ///< steps applied since the scale changed last
  int64_t applied = 0;     ///< updates applied so far: Adam's t
};

}  // namespace chiron
