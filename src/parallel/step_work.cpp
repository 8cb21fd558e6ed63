#include "parallel/step_work.h"

#include <algorithm>

#include "base/error.h"

namespace chiron {

Work& Work::operator+=(const Work& o) {
  calls += o.calls, flops += o.flops, bytes += o.bytes, larger += o.larger;
  return *this;
}

void add(WorkByOp& to, const WorkByOp& more, double times) {
  for (const auto& [op, work] : more) to[op] += work * times;
}

void StepWork::begin(const OpInfo& info) {
  auto bytes_of = [](std::span<const Operand> side) {
    double sum = 0;
    for (const Operand& o : side)
      if (o.shape.rank > 0) sum += static_cast<double>(o.bytes());
    return sum;
  };
  const double out = bytes_of(info.outputs), in = bytes_of(info.inputs);
  parts.back().ops[info.name] += {1, info.flops, out + in, std::max(out, in)};
}

WorkByOp StepWork::total() const {
  WorkByOp sum;
  for (const Part& part : parts) add(sum, part.ops);
  return sum;
}

ActionWork cut_by_action(const StepWork& work, const std::vector<Action>& actions,
                         const std::vector<UnitRange>& units) {
  ActionWork cut;
  WorkByOp* to = &cut.before;
  for (const StepWork::Part& part : work.parts) {
    if (part.unit < 0 && cut.actions.size() == actions.size()) to = &cut.after;
    if (cut.actions.size() < actions.size()) {
      // Each action begins with the unit at its end of the chunk.
      const Action& next = actions[cut.actions.size()];
      const UnitRange range = units[static_cast<size_t>(next.chunk)];
      const bool forward = next.kind == Action::forward;
      if (part.unit == (forward ? range.first : range.last - 1) && part.forward == forward) {
        cut.actions.push_back({{}, range.last - range.first});
        to = &cut.actions.back().ops;
      }
    }
    add(*to, part.ops);
  }
  CHECK(cut.actions.size() == actions.size(), "{} of {} actions are in the trace", cut.actions.size(), actions.size());
  return cut;
}

}  // namespace chiron
