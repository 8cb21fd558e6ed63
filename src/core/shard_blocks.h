#pragma once

#include <algorithm>
#include <span>

#include "core/param.h"
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

}  // namespace chiron
