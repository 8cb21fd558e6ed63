#pragma once

#include <algorithm>
#include <vector>

#include "core/stack.h"

namespace chiron {

/// The three kinds of activation memory: what is saved of each micro-batch between its forward pass and its last
/// action, slots that live as long as one call of a unit, and scratch.
struct Stacks {
  std::vector<Stack> saved;  ///< one for each micro-batch (and chunk) in flight
  Stack unit, temp;

  /// The most micro-batches that may be in flight: dry stacks have so many address ranges for them.
  static constexpr int kMostInFlight = 46;

  static Stacks dry(int in_flight = 1) {
    constexpr int kFirst = 16;
    Stacks stacks{{}, Stack::dry(5), Stack::dry(6)};
    for (int i = 0; i < in_flight; ++i) stacks.saved.push_back(Stack::dry(kFirst + i));
    return stacks;
  }
  /// Of exactly the size that a dry run needed.
  static Stacks like(const Stacks& planned, Device device) {
    Stacks stacks{{}, Stack(device, planned.unit.peak()), Stack(device, planned.temp.peak())};
    for (const Stack& stack : planned.saved) stacks.saved.emplace_back(device, stack.peak());
    return stacks;
  }
  int64_t saved_peak() const {
    int64_t sum = 0;
    for (const Stack& stack : saved) sum += stack.peak();
    return sum;
  }
  int64_t peak() const { return saved_peak() + unit.peak() + temp.peak(); }
};

}  // namespace chiron
