#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/stream.h"
#include "train/options.h"

namespace chiron {

/// Whole training steps; on a CPU beside their linear products alone.
struct StepBench {
  int64_t parameters = 0, vocab_size = 0, tokens_per_step = 0;
  int threads = 0;
  double step_seconds = 0;  ///< median
  double step_flops = 0;    ///< by plan
  /// CPU: the same products, shapes and counts, back to back on BLIS's own threads; median
  double products_seconds = 0;
  double product_flops = 0;
  struct Share {
    std::string op;
    int64_t calls = 0;
    double seconds = 0;
  };
  std::vector<Share> ops;  ///< of one step, longest first

  double tokens_per_second() const { return static_cast<double>(tokens_per_step) / step_seconds; }
  /// Of the speed that the products alone would allow. Beyond 1 it was measured on a busy machine.
  double share_of_products() const { return products_seconds / step_seconds; }
};

/// Is told what is measured next.
using BenchWatcher = std::function<void(const std::string&)>;

/// Times a configuration on synthetic tokens of the vocabulary that `train` would have. On a CPU float32 only, since
/// the products are compared in it. ConfigError if the data that names the vocabulary is not there.
StepBench bench_step(const Options& options, int64_t steps, Log& log, const BenchWatcher& watcher);

/// One case of one op.
struct OpBench {
  std::string op, name;
  double seconds = 0;  ///< median of a call
  double gb_per_second = 0, gflop_per_second = 0;
};

/// Times every op at sizes of a small GPT's training step.
std::vector<OpBench> bench_ops(int threads, const BenchWatcher& watcher);

}  // namespace chiron
