#include "cli/doctor_command.h"

#include <blis.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/numbers.h"
#include "base/thread_pool.h"
#include "core/stream.h"

namespace chiron::cli {

namespace {

/// The value of the first "key : value" line, without blanks around it; empty if there is none.
std::string field(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

/// A field of /proc/meminfo, in bytes; 0 if it is not there.
double meminfo(const char* key) {
  std::string text = field("/proc/meminfo", key), problem;
  auto kib = parse_int(text.substr(0, text.find(' ')), problem);
  return kib ? 1024.0 * static_cast<double>(*kib) : 0;
}

/// The limit that the control group sets to this process, or an empty string.
std::string memory_limit() {
  std::ifstream in("/sys/fs/cgroup/memory.max");
  std::string text, problem;
  in >> text;
  auto bytes = parse_int(text, problem);
  return bytes ? ", of which this process may use " + gib(static_cast<double>(*bytes)) : "";
}

std::string cpu_level_name() {
  switch (cpu_level()) {
    case CpuLevel::baseline:
      break;
    case CpuLevel::avx2:
      return "AVX2 (x86-64-v3)";
    case CpuLevel::avx512:
      return "AVX-512 (x86-64-v4)";
  }
  return "baseline";
}

std::string disk() {
  std::error_code error;
  auto space = std::filesystem::space(".", error);
  return error ? "unknown: " + error.message() : gib(static_cast<double>(space.available)) + " free here";
}

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

ExitCode doctor(const DoctorArgs&) {
  std::string model = field("/proc/cpuinfo", "model name");
  std::string sanitizers = CHIRON_SANITIZERS;
  fmt::print("chiron     {}\n", CHIRON_VERSION);
  fmt::print("build      {}, {}{}\n", CHIRON_BUILD_TYPE, kCompiler,
             sanitizers.empty() ? "" : ", sanitizers: " + sanitizers);
  fmt::print("CPU        {}, {} cores for this process\n", model.empty() ? "unknown" : model, num_cores());
  fmt::print("CPU loops  {}\n", cpu_level_name());
  fmt::print("products   BLIS {}, {} kernels\n", bli_info_get_version_str(), bli_arch_string(bli_arch_query_id()));
  fmt::print("memory     {} in all, {} available{}\n", gib(meminfo("MemTotal")), gib(meminfo("MemAvailable")),
             memory_limit());
  fmt::print("GPU        none: this build computes on the CPU\n");
  fmt::print("disk       {}\n", disk());
  return ExitCode::done;
}

}  // namespace chiron::cli
