#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace chiron {

/// What the process returns to the shell. docs/errors.md lists the same codes for users.
enum class ExitCode : int {
  done = 0,
  check_failed = 1,
  config = 2,
  data = 3,
  io = 4,
  device = 5,
  comm = 6,
  diverged = 7,
  bug = 70,
  stopped = 75,
};

/// The root of everything Chiron throws. Three kinds, never mixed:
/// the user's (ConfigError, DataError), the environment's (IoError, DeviceError, CommError, Diverged), ours (Bug).
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// An Error whose exit code is part of its type; the message is formatted as by fmt::format.
template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  template <class... Args>
  explicit ErrorOf(fmt::format_string<Args...> format, Args&&... args)
      : Error(kCode, fmt::format(format, std::forward<Args>(args)...)) {}
};

using ConfigError = ErrorOf<ExitCode::config>;        ///< an option or a command line that cannot be
using DataError = ErrorOf<ExitCode::data>;            ///< a file with content that cannot be used
using IoError = ErrorOf<ExitCode::io>;                ///< the file system refused
using DeviceError = ErrorOf<ExitCode::device>;        ///< a device is missing, full or lost
using CommError = ErrorOf<ExitCode::comm>;            ///< another rank is missing or lost
using Diverged = ErrorOf<ExitCode::diverged>;         ///< too many non-finite steps in a row
using CheckFailed = ErrorOf<ExitCode::check_failed>;  ///< a check that was asked for found a difference
using Bug = ErrorOf<ExitCode::bug>;                   ///< a broken invariant of our own; thrown by CHECK

/// Throws Bug with file, line, the condition's text and the formatted message.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace chiron

/// Invariants that no user input can break. CHECK(condition) or CHECK(condition, "format", args...).
#define CHECK(condition, ...)                                                                \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::chiron::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
