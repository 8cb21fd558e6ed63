#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "train/options.h"

namespace chiron::cli {

struct GenerateArgs {
  std::string model;
  std::string prompt;
  std::string prompt_ids;  ///< token ids, separated by commas or spaces
  int64_t max_tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;  ///< 0: all tokens
  double top_p = 1;
  int64_t seed = 1;
  std::vector<std::string> stop;
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;

  void describe(Command& c);
};

/// Continues a prompt.
ExitCode generate(const GenerateArgs& args);

}  // namespace chiron::cli
