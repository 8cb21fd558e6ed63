#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

struct ManArgs {
  void describe(Command&) {}
};

/// Prints the manual page, in the man(7) macros: `chiron man > chiron.1`.
ExitCode man(const ManArgs& args);

std::string man_page(const std::vector<Command>& table);

}  // namespace chiron::cli
