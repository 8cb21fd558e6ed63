#include <type_traits>

#include "core/launch.h"
#include "gpu/vec.h"
#include "ops/adamw/adamw_gpu.h"
#include "ops/adamw/adamw_rules.h"

namespace chiron::gpu {
namespace {

constexpr int kThreads = 256, kAhead = 2;  // groups of four elements that a thread has under way
constexpr int kFour = kVec<float>;
static_assert(kShardBlock % (kThreads * kAhead * kFour) == 0);

/// The state of four elements.
struct Four {
  Floats<float> w, g, m, v;

  __device__ void step(const AdamWCoefficients& k, float decay) {
    for (int e = 0; e < kFour; ++e) {
      const float scaled = g[e] * k.clip;
      m[e] = k.beta1 * m[e] + k.rest1 * scaled;
      v[e] = k.beta2 * v[e] + k.rest2 * scaled * scaled;
      w[e] -= k.rate * m[e] / (sqrt(v[e]) * k.root + k.eps) + decay * w[e];
    }
  }
};

/// The first n (up to four) elements at p, rounded; at once where all are asked for and p is aligned to them.
template <class C>
__device__ void store_narrow(C* p, const Floats<float>& w, int64_t n) {
  if (n >= kFour && reinterpret_cast<uintptr_t>(p) % 8 == 0) {
    *reinterpret_cast<uint64_t*>(p) = pack2<C>(w[0], w[1]) | static_cast<uint64_t>(pack2<C>(w[2], w[3])) << 32;
    return;
  }
  for (int e = 0; e < kFour; ++e)
    if (e < n) p[e] = from_float<C>(w[e]);
}

/// Elements [begin, begin + n) of a shard, on a block of threads; C is the type of the compute copy, void if there is
/// none.
template <class C>
__device__ void update(const DeviceShard& shard, int64_t begin, int64_t n, const AdamWCoefficients& k) {
  float *pw = shard.master + begin, *pm = shard.m + begin, *pv = shard.v + begin;
  const float* pg = shard.grad + begin;
  const float decay = shard.decay ? k.decay : 0;
  const auto narrow = [&](int64_t i, const Floats<float>& w) {
    if constexpr (!std::is_void_v<C>) store_narrow(reinterpret_cast<C*>(shard.compute) + begin + i, w, n - i);
  };
  if (n == kShardBlock && is_aligned16(pw) && is_aligned16(pm) && is_aligned16(pv) && is_aligned16(pg)) {
    for (int64_t first = thread() * kFour; first < n; first += kAhead * kThreads * kFour) {
      Four four[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int64_t i = first + j * kThreads * kFour;
        four[j] = {unpack<float>(load16(pw + i)), unpack<float>(load16(pg + i)), unpack<float>(load16(pm + i)),
                   unpack<float>(load16(pv + i))};
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int64_t i = first + j * kThreads * kFour;
        four[j].step(k, decay);
        store16(pm + i, pack<float>(four[j].m));
        store16(pv + i, pack<float>(four[j].v));
        store16(pw + i, pack<float>(four[j].w));
        narrow(i, four[j].w);
      }
    }
    return;
  }
  for (int64_t i = thread() * kFour; i < n; i += kThreads * kFour) {
    Four four{load(pw + i, n - i), load(pg + i, n - i), load(pm + i, n - i), load(pv + i, n - i)};
    four.step(k, decay);
    store(pm + i, four.m, n - i);
    store(pv + i, four.v, n - i);
    store(pw + i, four.w, n - i);
    narrow(i, four.w);
  }
}

/// A block of threads per block of a shard, four elements by thread. Bound by memory: 28 bytes for each element, and
/// 2 for the compute copy.
__global__ void __launch_bounds__(kThreads) adamw_kernel(const DeviceShard* shards, int num_shards, int64_t blocks,
                                                         const StepScalars* scalars, AdamWOptions options) {
  if (!scalars->finite) return;
  SharedMemory memory;
  auto shared = memory.take<AdamWCoefficients>(1);
  if (thread() == 0) shared[0] = adamw_coefficients(*scalars, options);
  sync_block();
  const AdamWCoefficients k = shared[0];
  for (int64_t b = block(); b < blocks; b += num_blocks()) {
    const DeviceShard& shard = shards[find_shard(shards, num_shards, b)];
    const int64_t begin = (b - shard.first_block) * kShardBlock;
    const int64_t n = shard.numel - begin < kShardBlock ? shard.numel - begin : kShardBlock;
    if (!shard.compute)
      update<void>(shard, begin, n, k);
    else if (shard.compute_dtype == DType::bf16)
      update<bf16>(shard, begin, n, k);
    else
      update<f16>(shard, begin, n, k);
  }
}

}  // namespace

void adamw(Stream& s, const StepScalars* scalars, const Shards& shards, const AdamWOptions& options) {
  const int64_t blocks = chiron::num_blocks(shards);
  CHECK(blocks == 0 || shards.table.present(), "shards without a table in the device's memory");
  if (blocks == 0) return;
  launch(s,
         {.kernel = "adamw_kernel",
          .blocks = std::min<int64_t>(blocks, 1 << 20),
          .threads = kThreads,
          .shared = shared_bytes<AdamWCoefficients>(1)},
         adamw_kernel, shards.on_device(), static_cast<int>(shards.size()), blocks, scalars, options);
}

}  // namespace chiron::gpu
