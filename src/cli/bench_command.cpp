#include "cli/bench_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "train/bench.h"

namespace chiron::cli {
namespace {

nlohmann::json step_json(const StepBench& b) {
  nlohmann::json ops = nlohmann::json::array();
  for (const auto& share : b.ops)
    ops.push_back({{"op", share.op}, {"calls", share.calls}, {"milliseconds", share.seconds * 1e3}});
  nlohmann::json out = {{"parameters", b.parameters},
                        {"tokens_per_step", b.tokens_per_step},
                        {"threads", b.threads},
                        {"step_milliseconds", b.step_seconds * 1e3},
                        {"tokens_per_second", b.tokens_per_second()},
                        {"tflop_per_second", b.step_flops / b.step_seconds / 1e12},
                        {"ops", ops}};
  if (b.product_flops > 0) {
    out["products_milliseconds"] = b.products_seconds * 1e3;
    out["products_gflop_per_second"] = b.product_flops / b.products_seconds / 1e9;
    out["share_of_products"] = b.share_of_products();
  }
  return out;
}

nlohmann::json ops_json(const std::vector<OpBench>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (const OpBench& b : list)
    out.push_back({{"op", b.op},
                   {"case", b.name},
                   {"milliseconds", b.seconds * 1e3},
                   {"gb_per_second", b.gb_per_second},
                   {"gflop_per_second", b.gflop_per_second}});
  return out;
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

ExitCode bench(const BenchArgs& args) {
  Log log;
  nlohmann::json result;
  if (args.subject == BenchSubject::step) {
    if (args.config.empty() && !args.sets.empty())
      throw ConfigError("bench: --set {} needs a --config whose option it sets", args.sets[0]);
    Options options = args.config.empty() ? default_step() : load_options(args.config, args.sets);
    if (args.threads > 0) options.run.threads = args.threads;
    log.info("measuring {} steps of {}, {} tokens each, and their products alone ...", args.steps,
             args.config.empty() ? "a GPT of 10M parameters" : args.config,
             options.training.batch_size * options.training.seq_len * options.training.gradient_accumulation);
    result = step_json(bench_step(options, args.steps, log));
  } else {
    const char* of_step = !args.config.empty()              ? "--config"
                          : !args.sets.empty()              ? "--set"
                          : args.steps != BenchArgs{}.steps ? "--steps"
                                                            : nullptr;
    if (of_step) throw ConfigError("bench ops: {} belongs to bench step; leave it out", of_step);
    log.info("measuring each op at the sizes of a small GPT ...");
    result = ops_json(bench_ops(static_cast<int>(args.threads)));
  }
  fmt::print("{}\n", result.dump(2));
  return ExitCode::done;
}

}  // namespace chiron::cli
