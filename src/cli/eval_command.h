#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "train/options.h"

namespace chiron::cli {

struct EvalArgs {
  std::string model;
  std::vector<std::string> data;
  int64_t batch_size = 8;
  int64_t seq_len = 0;  ///< 0: the model's context, at most 4096
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;

  void describe(Command& c);
};

/// Prints loss, perplexity and bits per byte.
ExitCode eval(const EvalArgs& args);

}  // namespace chiron::cli
