#pragma once

#include <chrono>
#include <functional>

#include "comm/communicator.h"

namespace chiron {

struct ThreadRankOptions {
  std::chrono::milliseconds timeout{20'000};  ///< of one call
  /// Bytes of a piece; 0: tensors go whole, since threads read each other's memory. For tests.
  int64_t piece_bytes = 0;
};

/// Runs f(communicator) on n threads of this process, which are the ranks of a world of n; each makes its own Stream
/// and ThreadPool. Returns when all have ended. If some throw, the others get a CommError from the call they are in or
/// make next, and what the first threw is thrown here. A rank that ends while others wait for it is such a failure too.
void run_thread_ranks(int n, const std::function<void(Communicator&)>& f, const ThreadRankOptions& options = {});

}  // namespace chiron
