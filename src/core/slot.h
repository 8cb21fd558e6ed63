#pragma once

#include <array>
#include <span>

#include "core/tensor.h"

namespace chiron {

/// A saved activation: a memoised function of the block's input. Empty until its equation fills it; `stat` is the small
/// side output (rstd, log-sum-exp) that lives and dies with the value.
struct Slot {
  Tensor value, stat;
  bool keep = false;  ///< the policy: kept until backward, or forgotten when forward ends
  bool filled() const { return value.present(); }
  void forget() { value = stat = {}; }
};

/// All that backward of one unit may ask for, for one micro-batch. Slots are named by the model's table.
struct Saved {
  static constexpr int kMaxSlots = 12;
  View x;  ///< the unit's input, always kept
  std::array<Slot, kMaxSlots> slots;
  Slot& operator[](int i) { return slots[static_cast<size_t>(i)]; }
};

}  // namespace chiron
