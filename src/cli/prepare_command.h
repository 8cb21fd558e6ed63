#pragma once

#include "cli/command.h"
#include "data/prepare.h"

namespace chiron::cli {

struct PrepareArgs : PrepareOptions {
  void describe(Command& c);
};

/// Turns text into token shards.
ExitCode prepare(const PrepareArgs& args);

}  // namespace chiron::cli
