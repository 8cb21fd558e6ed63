#pragma once

#include <cstdint>
#include <vector>

namespace chiron {

/// One thing that a stage does for one micro-batch.
struct Action {
  enum Kind : uint8_t { forward, backward, weights } kind;
  int micro;
  bool operator==(const Action&) const = default;
};

/// The order of one stage that holds all units: each micro-batch goes forward, then back. `split` puts the weight
/// gradients of a micro-batch into an action of their own, in micro-batch order, so that bits do not change.
std::vector<Action> accumulation_schedule(int micros, bool split = false);

}  // namespace chiron
