#pragma once

#include "core/stack.h"
#include "core/step_scalars.h"

namespace chiron {

/// The StepScalars of a run: the copy in device memory, and the host's way to it.
class Scalars {
 public:
  explicit Scalars(Stream& s) : memory_(s.device(), sizeof(StepScalars)), host_(s.device(), sizeof(StepScalars)) {
    write(s, {});
  }

  StepScalars* device() { return reinterpret_cast<StepScalars*>(memory_.at()); }
  /// What the device holds when the stream's work so far is done.
  StepScalars read(Stream& s) {
    s.download(host_.data(), bytes());
    return *static_cast<StepScalars*>(host_.data());
  }
  /// Replaces all of it; ordered on the stream.
  void write(Stream& s, const StepScalars& values) {
    s.sync();  // the write before may still be on its way
    *static_cast<StepScalars*>(host_.data()) = values;
    s.upload(bytes(), host_.data());
  }

 private:
  Tensor bytes() const { return {memory_.at(), DType::u8, {sizeof(StepScalars)}}; }
  Buffer memory_;
  HostBuffer host_;
};

}  // namespace chiron
