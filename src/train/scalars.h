#pragma once

#include "core/stack.h"
#include "core/step_scalars.h"

namespace chiron {

/// The StepScalars of a run: the copy in device memory, and the host's way to it.
class Scalars {
 public:
  explicit Scalars(Device device) : memory_(device, sizeof(StepScalars)) { *at() = {}; }

  StepScalars* device() { return at(); }
  /// What the device holds when the stream's work so far is done.
  StepScalars read(Stream& s) {
    s.sync();
    return *at();
  }
  /// Replaces all of it; ordered on the stream.
  void write(Stream&, const StepScalars& values) { *at() = values; }

 private:
  StepScalars* at() { return reinterpret_cast<StepScalars*>(memory_.at()); }
  Buffer memory_;
};

}  // namespace chiron
