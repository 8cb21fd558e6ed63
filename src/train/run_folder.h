#pragma once

#include <optional>
#include <string>

#include "base/file_lock.h"
#include "base/log.h"
#include "train/options.h"

namespace chiron {

/// The folder of a run:
///   config.yaml      the resolved configuration      metrics.jsonl   one line a step
///   checkpoints/     step-00000120/, ...             lock            held while a process trains here
class RunFolder {
 public:
  /// Takes the folder: makes it, locks it (IoError if another process trains there), compares its configuration with
  /// `options` (ConfigError with the difference if an option changed that may not) and writes the new one down. `fresh`
  /// moves an existing run aside first; nothing is ever deleted.
  /// Of several ranks one does so, the first; for the others this is the folder's name only.
  RunFolder(const Options& options, bool fresh, Log& log, bool owner = true);

  const std::string& dir() const { return dir_; }
  std::string checkpoints() const { return dir_ + "/checkpoints"; }
  std::string metrics() const { return dir_ + "/metrics.jsonl"; }
  static std::string config_of(const std::string& dir) { return dir + "/config.yaml"; }
  /// IoError if the folder was moved or replaced since: what is there now is not this run's. The owner asks.
  void check_in_place() const;

 private:
  std::string dir_;
  std::optional<FileLock> lock_;
};

/// Options whose model is that of the run to go on with, if model.from names one and there is such a run: the folder
/// that it started from may be gone.
Options with_model_of_run(Options options, bool fresh);

}  // namespace chiron
