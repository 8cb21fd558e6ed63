#pragma once

#include "cli/command.h"

namespace chiron::cli {

struct DoctorArgs {
  bool selftest = false;

  void describe(Command& c);
};

/// Prints what this machine and this build can do. With `selftest` it then runs every op's cases on the GPU, or on the
/// CPU where there is none: a line per op, and a verdict. CheckFailed if an op is wrong.
ExitCode doctor(const DoctorArgs& args);

}  // namespace chiron::cli
