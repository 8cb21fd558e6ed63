#pragma once

#include <array>
#include <span>

#include "core/batch.h"
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

/// A row of a unit's slot table: what may be kept, under which name, and how large it is. One row per token.
struct SlotSpec {
  const char* name;
  int64_t cols;           ///< of the value, in the compute dtype
  int64_t stat_cols = 0;  ///< of the side output, in acc_dtype of it; 0: none
  bool gathered = false;  ///< under sequence parallelism: a row for every token, not for this tensor rank's alone
};

/// All that backward of one unit may ask for, for one micro-batch.
struct Saved {
  static constexpr int kMaxSlots = 12;
  const Batch* batch = nullptr;
  std::span<const SlotSpec> specs;  ///< the unit's table: names and sizes of `slots`
  View x;                           ///< the unit's input, always kept
  std::array<Slot, kMaxSlots> slots;
  Slot& operator[](int i) { return slots[static_cast<size_t>(i)]; }
};

}  // namespace chiron
