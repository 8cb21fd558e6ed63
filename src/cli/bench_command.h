#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cli/command.h"
#include "train/bench.h"

namespace chiron::cli {

enum class BenchSubject : uint8_t { step, ops };
constexpr std::array<std::string_view, 2> names_of(BenchSubject) { return {"step", "ops"}; }

struct BenchArgs {
  BenchSubject subject = BenchSubject::step;
  std::string config;  ///< of the step; empty: gpt2-10m
  std::vector<std::string> sets;
  int64_t steps = 15;
  int64_t threads = 0;
  bool json = false;

  void describe(Command& c);
};

/// Warns of a step that was faster than its products alone.
void warn_if_busy(const StepBench& b, Log& log);
/// Measures a training step, or the ops one by one.
ExitCode bench(const BenchArgs& args);

}  // namespace chiron::cli
