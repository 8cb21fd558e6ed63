#include "base/log.h"

namespace chiron {

void Log::put(LogLevel level, std::string_view text) {
  static constexpr std::array<std::string_view, 4> kPrefix{"debug: ", "", "warning: ", "error: "};
  std::string line = num_ranks_ > 1 ? fmt::format("[rank {}] ", rank_) : "";
  line += kPrefix[static_cast<size_t>(level)];
  line += text;
  line += '\n';
  // One write per line, so that lines of several processes do not mix.
  std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), to_);
  std::fflush(to_);
}

bool Log::first_time(const std::string& text) {
  std::lock_guard lock(mutex_);
  return seen_.insert(text).second;
}

}  // namespace chiron
