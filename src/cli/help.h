#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

inline constexpr const char* kProgramSummary = "Chiron trains large language models.";

/// What every command takes, or the program alone.
inline constexpr std::array<std::pair<const char*, const char*>, 2> kGlobalFlags{{
    {"--help", "Explains the program, or the command that it follows."},
    {"--version", "Prints the version."},
}};

inline constexpr std::array<std::pair<ExitCode, const char*>, 10> kExitCodes{{
    {ExitCode::done, "Done."},
    {ExitCode::check_failed, "A check found a difference."},
    {ExitCode::config, "An option or the command line cannot be."},
    {ExitCode::data, "The content of a file cannot be used."},
    {ExitCode::io, "The file system refused."},
    {ExitCode::device, "A device is missing, full or lost."},
    {ExitCode::comm, "Another process of the run is missing or lost."},
    {ExitCode::diverged, "Too many steps in a row were not finite."},
    {ExitCode::bug, "A mistake of Chiron's own."},
    {ExitCode::stopped, "Stopped by a signal, with the state saved; the same command resumes."},
}};

/// The sentences of an argument, with what it allows and its default.
std::string argument_doc(const Argument& argument);

/// What `chiron --help` prints.
std::string program_help(const std::vector<Command>& table);
/// What `chiron NAME --help` prints; for a group, its commands.
std::string command_help(const std::vector<Command>& table, const Command& command);
/// The manual page, in the man(7) macros: `chiron man > chiron.1`.
std::string man_page(const std::vector<Command>& table);

struct ManArgs {
  void describe(Command&) {}
};

/// Prints it.
ExitCode man(const ManArgs& args);

}  // namespace chiron::cli
