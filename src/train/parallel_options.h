#pragma once

#include <cstdint>

#include "base/schema.h"
#include "parallel/schedule.h"

namespace chiron {

/// How a run is spread over its ranks.
struct ParallelOptions {
  bool automatic = false;
  int64_t dp = 0, zero = 0, zero_group = 0, tp = 1;
  bool sequence = true;
  int64_t cp = 1, pp = 1;
  PipelineOrder schedule = PipelineOrder::one_f_one_b;
  int64_t chunks = 1, timeout = 600;

  void describe(Schema& s);
};

}  // namespace chiron
