#pragma once

#include <string>

#include "cli/command.h"

namespace chiron::cli {

struct ExportArgs {
  std::string run;
  std::string to;

  void describe(Command& c);
};

/// Writes the newest checkpoint of a run as a folder in the layout of Hugging Face.
ExitCode export_run(const ExportArgs& args);

}  // namespace chiron::cli
