#include "train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

namespace chiron {
namespace {

constexpr double kForget = 0.95;      // weight of the step before: rates follow the last 20 steps or so
constexpr double kDrawSeconds = 0.1;  // at most ten drawings a second

/// 34512 -> "34.5k"
std::string short_count(double value) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return *unit && value < 99.95 ? fmt::format("{:.1f}{}", value, unit) : fmt::format("{:.0f}{}", value, unit);
}

std::string duration(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const int64_t total = std::llround(seconds);
  const int64_t hours = total / 3600, minutes = total / 60 % 60;
  if (hours >= 48) return fmt::format("{}d {:02}h", hours / 24, hours % 24);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

/// A part of the line; where the terminal is too narrow, the highest ranks go first.
struct Field {
  int rank;
  std::string text;
};

std::string join(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

std::string fit(std::vector<Field> fields, int columns) {
  auto width = static_cast<size_t>(std::max(columns - 1, 1));  // the last column makes some terminals wrap
  std::string line = join(fields);
  while (line.size() > width && fields.size() > 1) {
    fields.erase(std::max_element(fields.begin(), fields.end(), [](auto& a, auto& b) { return a.rank < b.rank; }));
    line = join(fields);
  }
  return line.substr(0, width);
}

}  // namespace

Progress::Progress(std::ostream& out, std::function<int()> columns, int64_t every)
    : out_(out), columns_(std::move(columns)), every_(every) {
  CHECK(every >= 1);
}

void Progress::step(const StepStats& stats) {
  steps_ = kForget * steps_ + 1;
  tokens_ = kForget * tokens_ + static_cast<double>(stats.tokens);
  seconds_ = kForget * seconds_ + stats.seconds;
  wait_ = kForget * wait_ + stats.data_wait_seconds;
  since_drawn_ += stats.seconds + stats.other_seconds;
  ++count_;
  other_ += stats.other_seconds;

  const int columns = columns_();
  const bool must = first_ || stats.step >= stats.max_steps || stats.validation_loss;
  if (!must && (columns > 0 ? since_drawn_ < kDrawSeconds : stats.step % every_ != 0)) return;
  first_ = false;
  since_drawn_ = 0;

  const double speed = seconds_ > 0 ? tokens_ / seconds_ : 0, wait = seconds_ > 0 ? 100 * wait_ / seconds_ : 0;
  const auto left = static_cast<double>(std::max<int64_t>(stats.max_steps - stats.step, 0));
  std::vector<Field> fields = {{0, fmt::format("step {}/{}", stats.step, stats.max_steps)},
                               {1, fmt::format("loss {:.4f}", stats.loss)}};
  if (stats.validation_loss) fields.push_back({2, fmt::format("validation {:.4f}", *stats.validation_loss)});
  fields.push_back({5, fmt::format("lr {:.2e}", stats.learning_rate)});
  fields.push_back({6, fmt::format("grad {:.3g}", stats.grad_norm)});
  fields.push_back({4, short_count(speed) + " tok/s"});
  fields.push_back({8, fmt::format("wait {:.0f}%", wait)});
  fields.push_back({7, short_count(static_cast<double>(stats.memory_bytes)) + "B"});
  if (stats.skipped_steps > 0) fields.push_back({3, fmt::format("skipped {}", stats.skipped_steps)});
  if (stats.loss_scale) fields.push_back({7, fmt::format("scale {:.0f}", *stats.loss_scale)});
  fields.push_back({2, "ETA " + duration(left * (seconds_ / steps_ + other_ / count_))});

  if (columns > 0) {
    out_ << '\r' << fit(std::move(fields), columns) << "\x1b[K" << std::flush;
    drawn_ = true;
    if (stats.validation_loss) finish();  // an evaluation's line stays
  } else {
    out_ << join(fields) << '\n' << std::flush;
  }
}

void Progress::note(std::string_view line) {
  if (drawn_) out_ << "\r\x1b[K";
  drawn_ = false;
  out_ << line << '\n' << std::flush;
}

void Progress::finish() {
  if (drawn_) out_ << '\n' << std::flush;
  drawn_ = false;
}

int terminal_columns(int fd) {
  const char* term = std::getenv("TERM");
  if (!isatty(fd) || (term && std::string_view(term) == "dumb")) return 0;
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace chiron
