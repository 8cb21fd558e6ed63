#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

/// What a command line asks for.
struct Request {
  enum class Kind : uint8_t { run, help, version } kind = Kind::help;
  Command* command = nullptr;  ///< help: absent means the program's
};

/// Reads a command line (without the program's name) into the struct of the command it names; `help X` is `X --help`.
/// Throws ConfigError for an unknown command or option (with the nearest spelling), a missing or wrong value, or a word
/// too many.
Request parse(std::vector<Command>& table, std::vector<std::string> words);

/// The program: parses, runs, and turns exceptions into one message on stderr and an exit code.
int run_program(const std::vector<std::string>& words);

}  // namespace chiron::cli
