#pragma once

#include "cli/command.h"

namespace chiron::cli {

struct DoctorArgs {
  void describe(Command&) {}
};

/// Prints what this machine and this build can do. Touches no device and allocates next to nothing.
ExitCode doctor(const DoctorArgs& args);

}  // namespace chiron::cli
