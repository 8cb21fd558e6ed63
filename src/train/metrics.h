#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"
#include "train/step_stats.h"

namespace chiron {

/// A run's metrics.jsonl: one JSON object per line and step, in the order of the steps, each step once.
///   {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "step_seconds", "other_seconds",
///    "data_wait_seconds", "memory_bytes", "skipped_steps", "time", "finite"}, "validation_loss" where a step ended
///    with an evaluation, and "overflowed_steps" and "loss_scale" where that is dynamic.
/// Losses in nats per token, time in UTC (ISO 8601). A number that is not finite is null, and then "finite" is false.
class Metrics {
 public:
  /// Opens `file` to append, creating it if it is missing. Lines that do not belong to steps 1..resumed_step are
  /// dropped first: those of steps that a resumed run does again, and a last line torn by a kill. A new run passes 0.
  /// Throws IoError.
  Metrics(const std::string& file, int64_t resumed_step);

  /// Appends one line and hands it to the system, so that a kill of the process loses nothing. Throws IoError.
  void write(const StepStats& stats);

  /// Lines that the constructor dropped.
  int64_t dropped() const { return dropped_; }

 private:
  int64_t dropped_;  // before out_: the old lines go first
  FileWriter out_;
};

/// Resident memory of this process in bytes; 0 where the system does not tell.
int64_t resident_bytes();

}  // namespace chiron
