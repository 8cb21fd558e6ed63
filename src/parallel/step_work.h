#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/param.h"
#include "core/stream.h"
#include "parallel/schedule.h"
#include "parallel/stages.h"

namespace chiron {

/// Sums over calls of an op.
struct Work {
  double calls = 0, flops = 0;
  double bytes = 0;   ///< of all operands
  double larger = 0;  ///< of the larger side, outputs or inputs: the size of a collective

  Work& operator+=(const Work& o);
  Work operator*(double times) const { return {calls * times, flops * times, bytes * times, larger * times}; }
};
using WorkByOp = std::map<std::string, Work, std::less<>>;
void add(WorkByOp& to, const WorkByOp& more, double times = 1);

/// Sums up the ops of a step, dry or real, between changes of the unit.
class StepWork final : public Trace {
 public:
  struct Part {
    Unit unit;
    bool forward;
    WorkByOp ops;
  };
  std::vector<Part> parts{{-1, true, {}}};

  void begin(const OpInfo& info) override;
  void end(const OpInfo&) override {}
  void unit(int unit, bool forward) override { parts.push_back({unit, forward, {}}); }
  WorkByOp total() const;
};

/// A step, cut into the actions of one stage's schedule and what comes before and after them.
struct ActionWork {
  struct Pass {
    WorkByOp ops;
    int units;
  };
  WorkByOp before, after;
  std::vector<Pass> actions;
};

/// `work` is of a stage with these units in its chunks and these actions. What a stage receives for an action is
/// counted with the one before.
ActionWork cut_by_action(const StepWork& work, const std::vector<Action>& actions, const std::vector<UnitRange>& units);

}  // namespace chiron
