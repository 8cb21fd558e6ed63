#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

struct TrainArgs {
  std::string config;
  std::vector<std::string> sets;
  std::string out;
  bool fresh = false;
  int64_t crash_at = 0, disk_full_at = 0;  ///< file operations, for tests; 0: none

  void describe(Command& c);
};

/// Trains a model; returns ExitCode::stopped after a signal and a checkpoint.
ExitCode train(const TrainArgs& args);

}  // namespace chiron::cli
