#include "train/metrics.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace chiron {
namespace {

/// The step of a line; 0 if it is no line of ours.
int64_t step_of(const std::string& line) {
  auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  auto step = json.find("step");
  return step != json.end() && step->is_number_integer() ? step->get<int64_t>() : 0;
}

/// Keeps the lines of steps 1..resumed_step; returns how many went. The new file takes the old one's place at once.
int64_t drop_after(const std::string& file, int64_t resumed_step) {
  if (!file_exists(file)) {
    // A pipe, say, would be waited for without end.
    if (std::filesystem::exists(file) && !std::filesystem::is_character_file(file))
      throw IoError("{} is no regular file; move it out of the way", file);
    return 0;
  }
  std::string kept;
  int64_t dropped = 0, last_step = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_io_error("open", file, errno);
  for (std::string line; std::getline(in, line);) {
    const bool torn = in.eof();  // no newline at its end
    const int64_t step = torn ? 0 : step_of(line);
    if (step > last_step && step <= resumed_step) {
      last_step = step;
      kept += line + '\n';
    } else {
      ++dropped;
    }
  }
  if (in.bad()) throw_io_error("read", file, errno);
  if (dropped > 0) write_file(file, kept);
  return dropped;
}

}  // namespace

Metrics::Metrics(const std::string& file, int64_t resumed_step)
    : dropped_(drop_after(file, resumed_step)), out_(file, FileWriter::Mode::append) {}

void Metrics::write(const StepStats& stats) {
  bool finite = true;
  auto number = [&finite](double value) -> nlohmann::ordered_json {
    if (std::isfinite(value)) return value;
    finite = false;
    return nullptr;
  };
  nlohmann::ordered_json line;
  line["step"] = stats.step;
  line["loss"] = number(stats.loss);
  line["grad_norm"] = number(stats.grad_norm);
  line["lr"] = number(stats.learning_rate);
  line["tokens"] = stats.tokens;
  line["tokens_per_second"] = stats.seconds > 0 ? static_cast<double>(stats.tokens) / stats.seconds : 0.0;
  line["step_seconds"] = number(stats.seconds);
  line["other_seconds"] = number(stats.other_seconds);
  line["data_wait_seconds"] = number(stats.data_wait_seconds);
  line["memory_bytes"] = stats.memory_bytes;
  line["skipped_steps"] = stats.skipped_steps;
  if (stats.loss_scale) {
    line["overflowed_steps"] = stats.overflowed_steps;
    line["loss_scale"] = number(*stats.loss_scale);
  }
  if (stats.validation_loss) line["validation_loss"] = number(*stats.validation_loss);
  auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  line["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  line["finite"] = finite;
  out_.write(line.dump() + '\n');
  out_.flush();
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace chiron
