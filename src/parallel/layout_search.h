#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "parallel/schedule.h"

namespace chiron {

/// A way to spread a step over ranks; `micros` micro-batches of `batch_size` sequences on each data rank.
struct LayoutCandidate {
  int dp = 1, tp = 1, pp = 1, zero = 0;
  bool sequence = true;
  int64_t batch_size = 1, micros = 1;
  bool short_bubble = true;  ///< at most a fifth of a pipeline's time
};

/// What has to be spread.
struct LayoutTask {
  int ranks = 1;                       ///< for dp, tp and pp
  int64_t batch_size = 1, micros = 1;  ///< the step, on one rank
  int units = 1;                       ///< of the model
  PipelineOrder order = PipelineOrder::one_f_one_b;
  int64_t chunks = 1;
};

/// All of them without ZeRO, those of fewer stages first. dp takes micro-batches of the step and so divides them; where
/// a pipeline needs more, batches are cut.
std::vector<LayoutCandidate> layout_candidates(const LayoutTask& task);

/// What a candidate needs.
struct LayoutNeed {
  int64_t memory = 0;  ///< of the rank that needs most
  double moved = 0;    ///< weighed bytes that a rank sends in a step
};
struct FoundLayout {
  LayoutCandidate layout;
  LayoutNeed need;
  bool fits = false;  ///< else no layout does, and this one needs least
};
/// The layout that fits into so much memory and moves least, of the lowest ZeRO stage that fits; those of short bubbles
/// go first. `judge` gives nullopt for what cannot be. nullopt: nothing can be.
std::optional<FoundLayout> find_layout(const LayoutTask& task, int64_t memory,
                                       const std::function<std::optional<LayoutNeed>(const LayoutCandidate&)>& judge);

}  // namespace chiron
