#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace chiron {

enum class LogLevel : uint8_t { debug, info, warning, error };
constexpr std::array<std::string_view, 4> names_of(LogLevel) { return {"DEBUG", "INFO", "WARNING", "ERROR"}; }

/// Messages for the user, one line each, to stderr. INFO lines stand as they are, the others name their level; with
/// several ranks each line begins with its rank. Commands and the trainer own one and pass it on; any thread may write.
class Log {
 public:
  explicit Log(LogLevel level = LogLevel::info, int rank = 0, int num_ranks = 1, std::FILE* to = stderr)
      : level_(level), rank_(rank), num_ranks_(num_ranks), to_(to) {}

  bool enabled(LogLevel level) const { return level >= level_; }

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::debug, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::info, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::warning, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::error, format, std::forward<Args>(args)...);
  }
  /// A warning that this log gives once for each text, however often its cause returns.
  template <class... Args>
  void warning_once(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (enabled(LogLevel::warning) && first_time(text)) put(LogLevel::warning, text);
  }

 private:
  template <class... Args>
  void write(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(level)) put(level, fmt::format(format, std::forward<Args>(args)...));
  }
  void put(LogLevel level, std::string_view text);
  bool first_time(const std::string& text);

  LogLevel level_;
  int rank_, num_ranks_;
  std::FILE* to_;
  std::mutex mutex_;
  std::set<std::string> seen_;
};

}  // namespace chiron
