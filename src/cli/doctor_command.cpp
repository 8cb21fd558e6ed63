#include "cli/doctor_command.h"

#include <blis.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/host_memory.h"
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "core/stream.h"
#include "ops/op_case_selftest.h"

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

std::string memory() {
  const HostMemory m = host_memory();
  return bytes_text(m.total) + " in all, " + bytes_text(m.available) + " available" +
         (m.limit > 0 ? ", of which this process may use " + bytes_text(m.limit) : "");
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
  return error ? "unknown: " + error.message() : bytes_text(static_cast<int64_t>(space.available)) + " free here";
}

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

void print_gpus() {
  if constexpr (!gpu::kBuilt) {
    fmt::print("GPU        none: this build computes on the CPU\n");
  } else {
    if (std::string why = gpu::why_no_device(); !why.empty()) fmt::print("GPU        none: {}\n", why);
    for (int i = 0; i < gpu::num_devices(); ++i) {
      try {
        const gpu::Traits t = gpu::traits(i);
        fmt::print("GPU {}      {} ({}), {}, {} multiprocessors\n", i, t.name, t.target, bytes_text(t.memory),
                   t.multiprocessors);
      } catch (const DeviceError& e) {
        fmt::print("GPU {}      of no use: {}\n", i, e.what());
      }
    }
  }
}

void run_self_test() {
  Device device;
  if constexpr (gpu::kBuilt)
    if (gpu::num_devices() > 0) device.kind = DeviceKind::gpu;
  ThreadPool pool;
  Stream s(device, pool);
  fmt::print("selftest   every op on the {}, in each of its dtypes\n", s.on_gpu() ? "GPU" : "CPU");
  int wrong = 0, ops = 0;
  self_test(s, [&](const OpVerdict& v) {
    constexpr size_t kShown = 3;
    const size_t failed = v.failures.size();
    ++ops;
    wrong += failed > 0;
    fmt::print("  {:<28} {:>4} runs   {}\n", v.op, v.runs, failed ? fmt::format("{} WRONG", failed) : "ok");
    for (size_t i = 0; i < std::min(kShown, failed); ++i) fmt::print("    {}\n", v.failures[i]);
    std::fflush(stdout);
  });
  if (wrong > 0) throw CheckFailed("doctor: {} of {} ops are wrong on this {}", wrong, ops, s.on_gpu() ? "GPU" : "CPU");
  fmt::print("all ops are right\n");
}

}  // namespace

ExitCode doctor(const DoctorArgs& args) {
  std::string model = field("/proc/cpuinfo", "model name");
  std::string sanitizers = CHIRON_SANITIZERS;
  fmt::print("chiron     {}\n", CHIRON_VERSION);
  fmt::print("build      {}, {}{}\n", CHIRON_BUILD_TYPE, kCompiler,
             sanitizers.empty() ? "" : ", sanitizers: " + sanitizers);
  fmt::print("CPU        {}, {} for this process\n", model.empty() ? "unknown" : model, counted(num_cores(), "core"));
  fmt::print("CPU loops  {}\n", cpu_level_name());
  fmt::print("products   BLIS {}, {} kernels\n", bli_info_get_version_str(), bli_arch_string(bli_arch_query_id()));
  fmt::print("memory     {}\n", memory());
  print_gpus();
  fmt::print("disk       {}\n", disk());
  if (args.selftest) run_self_test();
  return ExitCode::done;
}

}  // namespace chiron::cli
