#pragma once

#include <cstdint>
#include <optional>

namespace chiron {

/// What one training step reports, over all ranks.
struct StepStats {
  int64_t step = 0;       ///< steps done so far, this one included: 1..max_steps
  int64_t max_steps = 0;  ///< where the run ends
  double loss = 0;        ///< mean over the valid tokens, nats
  double grad_norm = 0;   ///< before clipping
  double learning_rate = 0;
  int64_t tokens = 0;                     ///< tokens of this step
  double seconds = 0;                     ///< of the step alone
  double other_seconds = 0;               ///< of what was done since the step before: its save, this one's evaluation
  double data_wait_seconds = 0;           ///< the part of `seconds` spent waiting for the batch
  int64_t skipped_steps = 0;              ///< steps of the whole run that were not applied (non-finite)
  int64_t overflowed_steps = 0;           ///< others that were not: the loss scale was too large
  int64_t memory_bytes = 0;               ///< resident memory of this process
  std::optional<double> loss_scale;       ///< of the next step; present if it is dynamic
  std::optional<double> validation_loss;  ///< nats; present if this step ended with an evaluation
};

}  // namespace chiron
