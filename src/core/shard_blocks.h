#pragma once

#include <algorithm>
#include <span>

#include "core/param.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// Elements in a block of a shard: the unit of work, and of partial sums, of ops that run over all shards.
inline constexpr int64_t kShardBlock = 16384;

inline int64_t num_blocks(const Shard& shard) { return (shard.master.numel() + kShardBlock - 1) / kShardBlock; }

inline int64_t num_blocks(std::span<const Shard> shards) {
  int64_t n = 0;
  for (const Shard& shard : shards) n += num_blocks(shard);
  return n;
}

/// Calls f(block, shard, begin, end) for every block of every shard, on all threads of a CPU stream; `block` counts
/// over all shards. Blocks never span two shards, and do not depend on the number of threads.
template <class F>
void for_each_shard_block(Stream& s, std::span<const Shard> shards, F f) {
  s.parallel(num_blocks(shards), 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      size_t i = 0;
      int64_t of_shard = block;
      while (of_shard >= num_blocks(shards[i])) of_shard -= num_blocks(shards[i++]);
      int64_t begin = of_shard * kShardBlock;
      f(block, shards[i], begin, std::min(begin + kShardBlock, shards[i].master.numel()));
    }
  });
}

/// A shard as a GPU's kernels see it.
struct DeviceShard {
  float *master, *m, *v;
  const float* grad;
  uintptr_t compute;    ///< 0: there is none
  int64_t numel;        ///< of each
  int64_t first_block;  ///< blocks of the shards before it
  DType compute_dtype;  ///< bf16 or f16
  bool decay;
};

/// A list of shards and, for a GPU's kernels, the same as a table in its memory.
struct Shards : std::span<const Shard> {
  using span::span;
  Shards(std::span<const Shard> list) : span(list) {}
  View table;  ///< u8, DeviceShard for each; absent on the CPU

  const DeviceShard* on_device() const { return reinterpret_cast<const DeviceShard*>(table.at); }
};

/// The list and its table. On a GPU's stream, dry ones too, the table's memory is pushed on `stack`, and filled unless
/// stream or stack is dry. `list` outlives the result.
Shards make_shards(Stream& s, Stack& stack, std::span<const Shard> list);

/// The number of the shard that a block belongs to.
constexpr int find_shard(const DeviceShard* shards, int num_shards, int64_t block) {
  int low = 0, high = num_shards;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (shards[middle].first_block <= block ? low : high) = middle;
  }
  return low;
}

}  // namespace chiron
