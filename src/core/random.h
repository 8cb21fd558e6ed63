#pragma once

#include <array>
#include <cstdint>

#include "base/philox.h"
#include "core/step_scalars.h"

namespace chiron {

/// Which stream of random numbers an op draws from: one per (seed, step, unit, op). Seed and step are read from the
/// device's StepScalars, so that a captured graph draws anew in each step.
struct RandomKey {
  const StepScalars* step = nullptr;
  uint32_t unit = 0;
  uint32_t op = 0;  ///< the place within the unit, as the model numbers them

  /// The Philox key: one Philox call over (step, unit, op) under the run's seed. Reads `step`: on a GPU, kernels call
  /// it.
  constexpr std::array<uint32_t, 2> key() const {
    auto seed = static_cast<uint64_t>(step->seed);
    auto n = static_cast<uint64_t>(step->step);
    auto words = philox({static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), unit, op},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    return {words[0], words[1]};
  }
};

/// Keep-or-drop: a word below this is dropped. p in [0, 1).
inline uint32_t drop_threshold(float p) { return static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0); }

}  // namespace chiron
