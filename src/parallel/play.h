#pragma once

#include <vector>

#include "parallel/schedule.h"

namespace chiron {

/// How long a stage takes.
struct StageTimes {
  std::vector<double> actions;  ///< seconds of each, in the order of schedule(shape, stage)
  /// Seconds until what another stage sends is there.
  double receive = 0;
  bool receive_blocks = false;  ///< the receiving rank does nothing else meanwhile
};

/// A step of a pipeline.
struct PlayedStep {
  double seconds = 0;
  std::vector<double> busy, receiving;  ///< of each stage

  /// The part of all stages' time in which they wait: the bubble.
  double bubble() const;
};

/// Lets the stages work side by side in the order of the schedule: each action starts when the one before has ended and
/// what it needs from other stages is there; a backward pass needs a free one of kGradientBuffers too.
PlayedStep play(const ScheduleShape& shape, const std::vector<StageTimes>& stages);

}  // namespace chiron
