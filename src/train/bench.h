#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/log.h"
#include "train/options.h"

namespace chiron {

/// What was measured, by name.
using Figures = nlohmann::ordered_json;
/// Is told what is measured next.
using BenchWatcher = std::function<void(const std::string&)>;

/// Times whole training steps of a configuration, on synthetic tokens of the vocabulary that `train` would have:
///   {"parameters", "vocab_size", "tokens_per_step", "threads", "step_milliseconds" (the median), "tokens_per_second",
///    "tflop_per_second" (by plan), "ops": [{"op", "calls", "milliseconds", "flops", "bytes"}] of one step, longest
///    first}
/// On a CPU in float32 only, and beside the step's linear products, back to back on BLIS's own threads:
///    "products_milliseconds", "products_gflop_per_second", and "share_of_products", the step's part of the speed that
///    they alone would allow; beyond 1 other programs were in the way.
/// ConfigError if the vocabulary comes from data that is not there.
Figures bench_step(const Options& options, int64_t steps, Log& log, const BenchWatcher& watcher);

/// Times every op at sizes of a small GPT's training step:
///   [{"op", "case", "milliseconds" (the median of a call), "gb_per_second", "gflop_per_second"}]
Figures bench_ops(int threads, const BenchWatcher& watcher);

}  // namespace chiron
