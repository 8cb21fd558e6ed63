#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "train/options.h"

/// The commands that take a model.
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

struct CheckArgs {
  std::string model;
  std::string against;
  DeviceChoice device = DeviceChoice::automatic;
  double tolerance = 0;  ///< 0: those that the reference dump is compared with by default

  void describe(Command& c);
};

/// Compares loss, logits, gradients and optimizer steps with a reference dump; throws CheckFailed on a difference.
ExitCode check(const CheckArgs& args);

struct ExportArgs {
  std::string run;
  std::string to;

  void describe(Command& c);
};

/// Writes the newest checkpoint of a run as a folder in the layout of Hugging Face.
ExitCode export_run(const ExportArgs& args);

}  // namespace chiron::cli
