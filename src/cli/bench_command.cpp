#include "cli/run_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "train/progress.h"
#include "train/setup.h"

namespace chiron::cli {
namespace {

std::string words(std::string key) {
  std::ranges::replace(key, '_', ' ');
  return key;
}

std::string cell(const Figures& value) {
  if (value.is_string()) return fmt::format("{:<26}", value.get<std::string>());
  const double x = value;
  const bool whole = value.is_number_integer() || x >= 1000;
  return fmt::format("{:>18}", whole ? with_commas(std::llround(x)) : fmt::format("{:.3g}", x));
}

/// An object's numbers, a line each; of a list of objects a heading and a line for each.
std::string table(const Figures& result) {
  std::string text;
  if (result.is_object()) {
    for (const auto& [key, value] : result.items())
      text += value.is_array() ? "\n" + table(value) : fmt::format("{:<26}{}\n", words(key), cell(value));
    return text;
  }
  for (const auto& [key, value] : result.at(0).items())
    text += value.is_string() ? cell(words(key)) : fmt::format("{:>18}", words(key));
  for (const Figures& row : result) {
    text += '\n';
    for (const Figures& value : row) text += cell(value);
  }
  return text + '\n';
}

/// On a terminal: a line that is written over.
void show(const std::string& what) {
  if (terminal_columns(STDERR_FILENO) > 0) fmt::print(stderr, "\r\x1b[K{}", what);
}

/// gpt2-10m: 6 layers, 6 heads, 384 wide, bytes, 8 sequences of 256 tokens.
Options default_step() {
  Options options;
  options.model = {.family = Family::gpt2, .num_layers = 6, .d_model = 384, .num_heads = 6, .vocab_size = 256};
  resolve(options.model);
  options.training.batch_size = 8;
  options.training.seq_len = 256;
  return options;
}

}  // namespace

void warn_if_busy(const Figures& step, Log& log) {
  if (step.value("share_of_products", 0.0) > 1)
    log.warning("the step took less time than its products alone: the machine is busy; do not trust these figures");
}

ExitCode bench(const BenchArgs& args) {
  Log log;
  Figures result;
  if (args.subject == BenchSubject::step) {
    if (args.config.empty() && !args.sets.empty())
      throw ConfigError("bench: --set {} needs a --config whose option it sets", args.sets[0]);
    Options options = args.config.empty() ? default_step() : with_model(load_options(args.config, args.sets), log);
    if (args.threads > 0) options.run.threads = args.threads;
    log.info(
        "measuring {} of {}, {} tokens each, and their products alone ...", counted(args.steps, "step"),
        args.config.empty() ? "a GPT of 10M parameters" : args.config,
        with_commas(options.training.batch_size * options.training.seq_len * options.training.gradient_accumulation));
    result = bench_step(options, args.steps, log, show);
  } else {
    const char* of_step = !args.config.empty()              ? "--config"
                          : !args.sets.empty()              ? "--set"
                          : args.steps != BenchArgs{}.steps ? "--steps"
                                                            : nullptr;
    if (of_step) throw ConfigError("bench ops: {} belongs to bench step; leave it out", of_step);
    log.info("measuring each op at the sizes of a small GPT ...");
    result = bench_ops(static_cast<int>(args.threads), show);
  }
  show("");
  if (result.is_object()) warn_if_busy(result, log);
  fmt::print("{}", args.json ? result.dump(2) + "\n" : table(result));
  return ExitCode::done;
}

}  // namespace chiron::cli
