#pragma once

#include <cstdint>

namespace chiron {

/// Learning rate as a function of the step, so that a resumed run has the rate of its step.
struct LearningRate {
  enum Shape : uint8_t { constant, linear, cosine, wsd };

  Shape shape = cosine;
  double peak = 3e-4, final = 0;  ///< final: reached at max_steps (not for constant)
  int64_t warmup_steps = 0, max_steps = 1;
  int64_t decay_steps = 0;  ///< wsd: the last steps, in which the rate falls linearly

  /// The rate of step n = 0, 1, ...: rises linearly over warmup_steps (step warmup_steps - 1 has the peak), then
  /// follows the shape and stays at `final` beyond max_steps.
  ///   cosine (Loshchilov & Hutter, "SGDR", 2017, eq. 5); wsd, warm-up, stable, decay (Hu et al., "MiniCPM", 2024,
  ///   section 4)
  double at(int64_t step) const;
};

}  // namespace chiron
