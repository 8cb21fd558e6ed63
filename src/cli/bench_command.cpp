#include "cli/bench_command.h"

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

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

Json step_json(const StepBench& b) {
  Json out = {{"parameters", b.parameters},
              {"vocab_size", b.vocab_size},
              {"tokens_per_step", b.tokens_per_step},
              {"threads", b.threads},
              {"step_milliseconds", b.step_seconds * 1e3},
              {"tokens_per_second", b.tokens_per_second()},
              {"tflop_per_second", b.step_flops / b.step_seconds / 1e12}};
  if (b.product_flops > 0) {
    out["products_milliseconds"] = b.products_seconds * 1e3;
    out["products_gflop_per_second"] = b.product_flops / b.products_seconds / 1e9;
    out["share_of_products"] = b.share_of_products();
  }
  for (const auto& share : b.ops)
    out["ops"].push_back({{"op", share.op}, {"calls", share.calls}, {"milliseconds", share.seconds * 1e3}});
  return out;
}

Json ops_json(const std::vector<OpBench>& list) {
  Json out;
  for (const OpBench& b : list)
    out.push_back({{"op", b.op},
                   {"case", b.name},
                   {"milliseconds", b.seconds * 1e3},
                   {"gb_per_second", b.gb_per_second},
                   {"gflop_per_second", b.gflop_per_second}});
  return out;
}

std::string words(std::string key) {
  std::ranges::replace(key, '_', ' ');
  return key;
}

std::string cell(const Json& value) {
  if (value.is_string()) return value;
  const double x = value;
  return value.is_number_integer() || x >= 1000 ? with_commas(std::llround(x)) : fmt::format("{:.3g}", x);
}

/// In columns, the first `texts` of them to the left and the others, numbers, to the right.
std::string grid(const Rows& rows, size_t texts) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      text += i < texts ? fmt::format("{:<{}}", row[i], widths[i])
                        : fmt::format("{:>{}}", row[i], widths[i]);
      text += i + 1 < row.size() ? "  " : "\n";
    }
  return text;
}

/// What is printed: the single numbers under their names, then the list of ops.
std::string table(const Json& result) {
  const Json& ops = result.is_array() ? result : result["ops"];
  Rows numbers, list(1);
  if (result.is_object())
    for (const auto& [key, value] : result.items())
      if (!value.is_array()) numbers.push_back({words(key), cell(value)});
  size_t texts = 0;
  for (const auto& [key, value] : ops[0].items()) {
    list[0].push_back(words(key));
    texts += value.is_string();
  }
  for (const Json& op : ops) {
    list.emplace_back();
    for (const Json& value : op) list.back().push_back(cell(value));
  }
  return grid(numbers, 1) + (numbers.empty() ? "" : "\n") + grid(list, texts);
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

void warn_if_busy(const StepBench& b, Log& log) {
  if (b.product_flops > 0 && b.share_of_products() > 1)
    log.warning("the step took less time than its products alone: the machine is busy; do not trust these figures");
}

ExitCode bench(const BenchArgs& args) {
  Log log;
  Json result;
  if (args.subject == BenchSubject::step) {
    if (args.config.empty() && !args.sets.empty())
      throw ConfigError("bench: --set {} needs a --config whose option it sets", args.sets[0]);
    Options options = args.config.empty() ? default_step() : with_model(load_options(args.config, args.sets), log);
    if (args.threads > 0) options.run.threads = args.threads;
    log.info("measuring {} of {}, {} tokens each, and their products alone ...", counted(args.steps, "step"),
             args.config.empty() ? "a GPT of 10M parameters" : args.config,
             options.training.batch_size * options.training.seq_len * options.training.gradient_accumulation);
    const StepBench measured = bench_step(options, args.steps, log, show);
    show("");
    warn_if_busy(measured, log);
    result = step_json(measured);
  } else {
    const char* of_step = !args.config.empty()              ? "--config"
                          : !args.sets.empty()              ? "--set"
                          : args.steps != BenchArgs{}.steps ? "--steps"
                                                            : nullptr;
    if (of_step) throw ConfigError("bench ops: {} belongs to bench step; leave it out", of_step);
    log.info("measuring each op at the sizes of a small GPT ...");
    result = ops_json(bench_ops(static_cast<int>(args.threads), show));
    show("");
  }
  fmt::print("{}", args.json ? result.dump(2) + "\n" : table(result));
  return ExitCode::done;
}

}  // namespace chiron::cli
