#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

struct PrepareArgs {
  std::vector<std::string> inputs;
  std::string out;
  std::string tokenizer;  ///< "byte" or a file; empty: byte, unless train_bpe asks for a new one
  int64_t train_bpe = 0;  ///< vocabulary size of a tokenizer to train; 0: none
  double validation = 0;
  std::string document_separator;
  int64_t shard_tokens = int64_t{1} << 25;
  bool overwrite = false;

  void describe(Command& c);
};

/// Turns text into token shards.
ExitCode prepare(const PrepareArgs& args);

}  // namespace chiron::cli
