#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chiron {

double LearningRate::at(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (shape == constant) return peak;
  const int64_t begin = shape == wsd ? std::max(warmup_steps, max_steps - decay_steps) : warmup_steps;
  if (step < begin) return peak;
  // The last step of the run, max_steps - 1, has not quite arrived; step max_steps would have `final`.
  const double length = static_cast<double>(std::max<int64_t>(1, max_steps - begin));
  const double done = std::min(1.0, static_cast<double>(step - begin) / length);
  const double left = shape == cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return final + (peak - final) * left;
}

}  // namespace chiron
