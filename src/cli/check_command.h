#pragma once

#include <string>

#include "cli/command.h"
#include "train/options.h"

namespace chiron::cli {

struct CheckArgs {
  std::string model;
  std::string against;
  DeviceChoice device = DeviceChoice::automatic;
  double tolerance = 0;  ///< 0: those that the reference dump is compared with by default

  void describe(Command& c);
};

/// Compares loss, logits, gradients and optimizer steps with a reference dump; throws CheckFailed on a difference.
ExitCode check(const CheckArgs& args);

}  // namespace chiron::cli
