#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stream.h"
#include "train/options.h"

namespace chiron {

/// Whole training steps; on a CPU beside their linear products alone.
struct StepBench {
  int64_t parameters = 0, tokens_per_step = 0;
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
  /// Of the speed that the products alone would allow.
  double share_of_products() const { return products_seconds / step_seconds; }
};

/// Times a configuration on synthetic tokens. On a CPU float32 only, since the products are compared in it.
StepBench bench_step(const Options& options, int64_t steps, Log& log);

/// One case of one op.
struct OpBench {
  std::string op, name;
  double seconds = 0;  ///< median of a call
  double gb_per_second = 0, gflop_per_second = 0;
};

/// Times every op at sizes of a small GPT's training step.
std::vector<OpBench> bench_ops(int threads);

}  // namespace chiron
