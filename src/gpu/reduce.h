#pragma once

#include <limits>

#include "gpu/gpu.h"

/// Sums and maxima over threads, in an order that is always the same. Every thread gets the result.
namespace chiron::gpu {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// A NaN among the values wins.
struct Max {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

/// Over the lanes of a warp, as a butterfly.
template <class T, class F>
__device__ inline T warp_reduce(T x, F f) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x = f(x, shuffle_xor(x, mask));
  return x;
}

/// Over the threads of a block. scratch: kMaxWarps elements, free again when this returns.
template <class T, class F>
__device__ inline T block_reduce(T x, T nothing, F f, Shared<T> scratch) {
  x = warp_reduce(x, f);
  if (lane() == 0) scratch[warp()] = x;
  sync_block();
  x = lane() < num_warps() ? scratch[lane()] : nothing;
  x = warp_reduce(x, f);
  sync_block();
  return x;
}

/// Threads of a block that works on n things alone.
inline int threads_for(int64_t n) {
  return n >= kMaxThreads ? kMaxThreads : static_cast<int>((n + 64 - (n > 0)) / 64 * 64);
}

/// Bytes of shared memory that a team takes, known to the host too: kMaxWarps is not.
inline constexpr int64_t kTeamShared = shared_bytes<float>(kMaxThreads / 32);

/// The threads that work on one row together: a warp, or the whole block.
template <bool kWarp>
class Team {
 public:
  __device__ explicit Team(SharedMemory& memory) {
    if constexpr (!kWarp) scratch_ = memory.take<float>(kMaxWarps);
  }
  __device__ int rank() const { return kWarp ? lane() : thread(); }
  __device__ int size() const { return kWarp ? kLanes : num_threads(); }
  /// Rows of a grid-stride loop: for (row = first_row(); row < rows; row += num_teams()).
  __device__ int64_t first_row() const { return kWarp ? block() * num_warps() + warp() : block(); }
  __device__ int64_t num_teams() const { return kWarp ? num_blocks() * num_warps() : num_blocks(); }
  __device__ void sync() const {
    if constexpr (kWarp)
      sync_warp();
    else
      sync_block();
  }
  __device__ float sum(float x) const {
    if constexpr (kWarp)
      return warp_reduce(x, Sum{});
    else
      return block_reduce(x, 0.0f, Sum{}, scratch_);
  }
  __device__ float max(float x) const {
    if constexpr (kWarp)
      return warp_reduce(x, Max{});
    else
      return block_reduce(x, -std::numeric_limits<float>::infinity(), Max{}, scratch_);
  }

 private:
  Shared<float> scratch_;
};

/// How kernels over rows are started: short rows go to warps, long ones to blocks.
struct RowLaunch {
  bool by_warp;
  Launch how;
};
inline RowLaunch row_launch(const char* kernel, int64_t rows, int64_t cols) {
  constexpr int64_t kShortRow = 2048, kMaxBlocks = 1 << 16;
  // A block of 256 threads has 8 warps or 4: blocks for half as many rows keep both busy.
  const bool by_warp = cols <= kShortRow;
  const int64_t blocks = by_warp ? (rows + 3) / 4 : rows;
  return {by_warp,
          {.kernel = kernel,
           .blocks = blocks < kMaxBlocks ? (blocks > 0 ? blocks : 1) : kMaxBlocks,
           .threads = 256,
           .shared = by_warp ? 0 : kTeamShared}};
}

}  // namespace chiron::gpu
