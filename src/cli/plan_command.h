#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

struct PlanArgs {
  std::string config;
  std::vector<std::string> sets;
  bool ops = false;

  void describe(Command& c);
};

/// Prints what a run needs, without allocating the model.
ExitCode plan(const PlanArgs& args);

}  // namespace chiron::cli
