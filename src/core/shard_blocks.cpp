#include "core/shard_blocks.h"

#include <vector>

namespace chiron {

Shards make_shards(Stream& s, Stack& stack, std::span<const Shard> list) {
  Shards shards(list);
  if (!s.on_gpu()) return shards;
  const Tensor table = stack.push(DType::u8, {static_cast<int64_t>(list.size() * sizeof(DeviceShard))});
  shards.table = table;
  if (s.dry() || stack.is_dry()) return shards;
  std::vector<DeviceShard> rows;
  int64_t blocks = 0;
  for (const Shard& shard : list) {
    rows.push_back({.master = shard.master.data<float>(),
                    .m = reinterpret_cast<float*>(shard.m.at),
                    .v = reinterpret_cast<float*>(shard.v.at),
                    .grad = shard.grad.data<float>(),
                    .compute = shard.compute.at,
                    .numel = shard.master.numel(),
                    .first_block = blocks,
                    .compute_dtype = shard.compute.dtype,
                    .decay = shard.decay});
    blocks += num_blocks(shard);
  }
  s.upload(table, rows.data());
  return shards;
}

}  // namespace chiron
