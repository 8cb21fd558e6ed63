#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

struct TrainArgs {
  std::string config;
  std::vector<std::string> sets;
  std::string out;
  bool fresh = false;

  void describe(Command& c);
};

/// Trains a model; returns ExitCode::stopped after a signal and a checkpoint.
ExitCode train(const TrainArgs& args);

}  // namespace chiron::cli
