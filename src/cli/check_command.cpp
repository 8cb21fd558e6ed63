#include "cli/model_commands.h"

#include <cstdio>

#include "train/check.h"
#include "train/device_stream.h"
#include "train/setup.h"

namespace chiron::cli {

ExitCode check(const CheckArgs& args) {
  Log log;
  ThreadPool pool;
  DeviceStream device = open_stream(args.device, pool, log);
  Stream& s = device.stream;
  const auto results = check_model(s, args.model, args.against, args.tolerance, log);
  size_t failed = 0;
  for (const Comparison& r : results) {
    fmt::print("{:<56} {:>10.3g} {:>10.3g}  {}\n", r.name, r.error, r.allowed, r.passed() ? "ok" : "DIFFERS");
    failed += !r.passed();
  }
  if (failed > 0) throw CheckFailed("{} of {} quantities differ from {}", failed, results.size(), args.against);
  fmt::print("all {} quantities agree with {}\n", results.size(), args.against);
  return ExitCode::done;
}

}  // namespace chiron::cli
