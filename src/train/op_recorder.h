#pragma once

#include <string>
#include <vector>

#include "core/param.h"
#include "core/stream.h"
#include "parallel/step_work.h"

namespace chiron {

/// One op of a step, as its stream told it.
struct PlannedOp {
  Unit unit;  ///< -1: outside all units
  bool forward;
  std::string slot;  ///< whose equation it belongs to; empty: none
  bool kept, again;  ///< the slot is kept; the op runs once more in backward because it is not
  std::string name;
  std::vector<Operand> outputs, inputs;  ///< those that are present
  double flops;

  /// Of all operands: what the op moves at least.
  int64_t bytes() const;
};

/// Writes down the ops of a step, dry or real.
class OpRecorder final : public Trace {
 public:
  std::vector<PlannedOp> ops;
  StepWork work;  ///< the same, summed up
  double flops = 0;

  void begin(const OpInfo& info) override;
  void end(const OpInfo&) override {}
  void unit(int unit, bool forward) override;
  void slot_begin(const char* name, bool kept, bool again) override;
  void slot_end() override;

 private:
  struct OpenSlot {
    const char* name;
    bool kept, again;
  };
  Unit unit_ = -1;
  bool forward_ = true;
  std::vector<OpenSlot> slots_;  // an equation may pull others
};

/// A product C (m, n) = A B of depth k, as a linear layer's forward or backward asks for it.
struct LinearProduct {
  enum Kind : uint8_t { forward, input, weight } kind;
  int64_t m, n, k;
  DType dtype;  ///< of A and B
  bool operator==(const LinearProduct&) const = default;
};

/// The linear products among some ops, in their order.
std::vector<LinearProduct> products_of(const std::vector<PlannedOp>& ops);

}  // namespace chiron
