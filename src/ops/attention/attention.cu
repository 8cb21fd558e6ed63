#include <algorithm>

#include "ops/attention/attention_gpu.h"
#include "ops/attention/attention_tiles.cuh"

namespace chiron::gpu {
namespace {

using namespace tiles;

/// Sizes of the forward kernel: a block has kQueries queries of one head, and takes kKeys keys at a time.
template <class T, int kDim, bool kChunks, bool kDrop>
struct Sizes {
  static constexpr bool kFloat = sizeof(T) == 4;
  /// 32 rows per warp where the registers suffice: each key that is read from shared memory then serves more products.
  static constexpr bool kTall = !kFloat && kDim <= 64 && !kDrop;
  static constexpr int kQueries = kTall ? 128 : 64, kKeys = 64;
  static constexpr int kLd = kDim + 8;  // rows begin in different banks
  static constexpr int kColTiles = kDim / 16, kSteps = kDim / Tile<T>::kK, kKeySteps = 16 / Tile<T>::kK;
  /// Whether queries stay in registers; they come through the keys' and values' memory.
  static constexpr bool kHold = !kFloat && !kChunks && !kTall;
  static constexpr int kArea = ((kHold ? 0 : kQueries) + 2 * kKeys) * kLd, kScratch = 256 * kThreads / 32;
  static_assert(kQueries <= 2 * kKeys);
  static constexpr int64_t kShared = shared_bytes<T>(kArea) + shared_bytes<T>(kScratch);
  static_assert(kShared <= 64 << 10);
};

/// Each warp has queries of its own, whose scores, statistics and sums stay in its registers (FlashAttention-2,
/// algorithm 1). Keys are loaded while values are multiplied, and values while keys are. Bound by the matrix units,
/// with the exponentials close behind at small head sizes.
template <class T, int kDim, bool kChunks, bool kDrop>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(Matrix<T> o, float* lse, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Problem p) {
  using S = Sizes<T, kDim, kChunks, kDrop>;
  using M = Tile<T>;
  constexpr int kRowTiles = S::kQueries / 16 / (kThreads / kLanes), kKeyTiles = S::kKeys / 16, kLd = S::kLd;
  SharedMemory memory;
  Shared<T> area = memory.take<T>(S::kArea);
  const Shared<T> scratch = memory.take<T>(S::kScratch) + warp() * 256;
  const Shared<T> queries = area, keys = area + (S::kHold ? 0 : S::kQueries * kLd), values = keys + S::kKeys * kLd;

  // Tiles of a head follow each other, so that they share its keys in the cache; late ones, which see more, come first.
  int at = static_cast<int>(block());
  const int chunks = kChunks ? (p.dim + kDim - 1) / kDim : 1, chunk = at % chunks;
  at /= chunks;
  const int num_tiles = (p.q_length + S::kQueries - 1) / S::kQueries;
  const int first = (num_tiles - 1 - at % num_tiles) * S::kQueries;
  at /= num_tiles;
  const int head = at % p.heads, sequence = at / p.heads;
  const int64_t row = static_cast<int64_t>(sequence) * p.q_length, key_row = sequence * p.k_stride;
  const int64_t col = static_cast<int64_t>(head) * p.dim, key_col = int64_t{head / (p.heads / p.kv_heads)} * p.dim;
  const T* const from_q = q.at + row * q.ld + col;
  const T* const from_k = k.at + key_row * k.ld + key_col;
  const T* const from_v = v.at + key_row * v.ld + key_col;
  auto load_queries = [&](int c) {
    load_tile<S::kQueries, kDim, kLd>(queries, from_q + c * kDim, q.ld, first, p.q_length, p.dim - c * kDim, p.aligned);
  };
  auto load_keys = [&](int j, int c) {
    load_tile<S::kKeys, kDim, kLd>(keys, from_k + c * kDim, k.ld, j - p.shift, p.k_length, p.dim - c * kDim, p.aligned);
  };
  auto load_values = [&](int j, int c) {
    load_tile<S::kKeys, kDim, kLd>(values, from_v + c * kDim, v.ld, j - p.shift, p.k_length, p.dim - c * kDim,
                                   p.aligned);
  };

  // The queries of this warp; those beyond the last one see what it sees.
  const int mine = warp() * kRowTiles * 16, t = first + mine;
  const int last_t = std::min(t + kRowTiles * 16, p.q_length) - 1;
  auto query = [&](int r, int slot) { return std::min(t + r * 16 + M::row_of(slot), p.q_length - 1); };
  const int end = p.last_key(std::min(first + S::kQueries, p.q_length) - 1) + 1;
  const int begin = p.first_key(sequence, first) / S::kKeys * S::kKeys;

  typename M::C out[kRowTiles][S::kColTiles] = {};
  float highest[kRowTiles][M::kRows], sums[kRowTiles][M::kRows];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int slot = 0; slot < M::kRows; ++slot) highest[r][slot] = -kInfinity, sums[r][slot] = 0;
  const float scale = p.scale * kLog2E;  // e^x = 2^(x log2 e)

  typename M::A held[S::kHold ? kRowTiles : 1][S::kHold ? S::kSteps : 1];
  if constexpr (!kChunks) load_queries(0);
  if constexpr (S::kHold) {
    copy_async_commit();
    copy_async_wait<0>();
    sync_block();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step)
        held[r][step] = M::load_a(queries + ((mine + r * 16) * kLd + step * M::kK), kLd);
    sync_block();
  }
  int32_t index[kRowTiles];
  if constexpr (kDrop) {
    for (int r = 0; r < kRowTiles; ++r) index[r] = p.index[row + query(r, lane() % M::kRows)];
  }
  const Draws draws = kDrop ? Draws(p, head) : Draws();

  if (!kChunks && begin < end) load_keys(begin, 0);
  copy_async_commit();
  for (int j = begin; j < end; j += S::kKeys) {
    const int last_j = j + S::kKeys - 1;
    const bool seen = t < p.q_length && p.any(sequence, t, last_t, j, last_j);
    typename M::C s[kRowTiles][kKeyTiles] = {};
    auto add_scores = [&] {
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
        typename M::A a[kRowTiles];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          a[r] = S::kHold ? held[r][step] : M::load_a(queries + ((mine + r * 16) * kLd + step * M::kK), kLd);
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          const auto b = M::load_b(keys + (n * 16 * kLd + step * M::kK), kLd);
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) M::mma(s[r][n], a[r], b);
        }
      }
    };
    if constexpr (kChunks) {
      for (int c = 0; c < chunks; ++c) {
        sync_block();
        load_queries(c);
        load_keys(j, c);
        if (c == 0) load_values(j, chunk);
        copy_async_commit();
        copy_async_wait<0>();
        sync_block();
        if (seen) add_scores();
      }
    } else {
      copy_async_wait<0>();
      sync_block();
      load_values(j, 0);
      copy_async_commit();
      if (seen) add_scores();
    }

    if (seen) {
      const bool masked = !p.all(sequence, t, last_t, j, last_j);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        if (masked) {
          int low[M::kRows], high[M::kRows];
#pragma unroll
          for (int slot = 0; slot < M::kRows; ++slot)
            low[slot] = p.first_key(sequence, query(r, slot)), high[slot] = p.last_key(query(r, slot));
#pragma unroll
          for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
            for (int i = 0; i < M::kRegs; ++i) {
              const int key = j + n * 16 + M::col(i), slot = M::row_slot(i);
              if (key < low[slot] || key > high[slot]) s[r][n].x[i] = -kInfinity;
            }
        }
        float shift[M::kRows];
#pragma unroll
        for (int slot = 0; slot < M::kRows; ++slot) {
          float top = highest[r][slot];
#pragma unroll
          for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
            for (int i = 0; i < M::kRegs; ++i)
              if (M::row_slot(i) == slot) top = fmaxf(top, s[r][n].x[i]);
#pragma unroll
          for (int mask = 1; mask < M::kRowLanes; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
          // Where nothing is seen yet, 2^(-inf - 0) = 0 instead of 2^(-inf + inf).
          shift[slot] = top == -kInfinity ? 0.0f : top * scale;
          const float correction = fast_exp2(fma(highest[r][slot], scale, -shift[slot]));
          highest[r][slot] = top;
          sums[r][slot] *= correction;
#pragma unroll
          for (int d = 0; d < S::kColTiles; ++d)
#pragma unroll
            for (int i = 0; i < M::kRegs; ++i)
              if (M::row_slot(i) == slot) out[r][d].x[i] *= correction;
        }
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int i = 0; i < M::kRegs; ++i) {
            const float e = fast_exp2(fma(s[r][n].x[i], scale, -shift[M::row_slot(i)]));
            s[r][n].x[i] = e;
            sums[r][M::row_slot(i)] += e;
          }
          if constexpr (kDrop) {
            const auto group = p.first_group + static_cast<uint32_t>(j / 4 + n * 4);
            const uint32_t dropped = dropped_across(draws, index[r], group);
#pragma unroll
            for (int i = 0; i < M::kRegs; ++i) s[r][n].x[i] = dropped >> i & 1 ? 0.0f : s[r][n].x[i];
          }
        }
      }
    }

    if constexpr (!kChunks) {
      copy_async_wait<0>();
      sync_block();
      if (j + S::kKeys < end) load_keys(j + S::kKeys, 0);
      copy_async_commit();
    }
    if (!seen) continue;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      typename M::Wide a[kRowTiles];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) a[r] = M::as_a(s[r][n], scratch);
#pragma unroll
      for (int step = 0; step < S::kKeySteps; ++step)
#pragma unroll
        for (int d = 0; d < S::kColTiles; ++d) {
          const auto b = M::load_b_transposed(values + ((n * 16 + step * M::kK) * kLd + d * 16), kLd);
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) M::mma(out[r][d], M::step(a[r], step), b);
        }
    }
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int slot = 0; slot < M::kRows; ++slot) {
      float total = sums[r][slot];
#pragma unroll
      for (int mask = 1; mask < M::kRowLanes; mask *= 2) total += shuffle_xor(total, mask);
      const int64_t of = row + t + r * 16 + M::row_of(slot);
      if (chunk == 0 && lane() % M::kRowLanes == 0 && t + r * 16 + M::row_of(slot) < p.q_length)
        lse[of * p.heads + head] = total == 0 ? -kInfinity : highest[r][slot] * p.scale + log(total);
      sums[r][slot] = total == 0 ? 0.0f : (kDrop ? p.kept : 1.0f) / total;
    }
  sync_block();
  store_tile<kLd>(o.at + row * o.ld + col + chunk * kDim, o.ld, t, p.q_length, p.dim - chunk * kDim, out,
                  area + mine * kLd, [&](int r, int slot) { return sums[r][slot]; });
}

}  // namespace

void attention(Stream& s, Rows o, Tensor lse, Rows q, Rows k, Rows v, const AttentionShape& a,
               const AttentionDropout& dropout, Tensor partial) {
  if (q.rows == 0) return;
  const Problem p(a, dropout, {o, q, k, v});
  if (a.q_length <= kFewQueries) return attend_few(s, o, lse, q, k, v, p, attention_splits(a), partial);
  by_gpu_float(q.dtype, [&]<class T>() {
    by_head_dim<T>(a.head_dim, [&]<int kDim, bool kChunks>() {
      auto start = [&]<bool kDrop>() {
        using S = Sizes<T, kDim, kChunks, kDrop>;
        const int64_t num_tiles = (a.q_length + S::kQueries - 1) / S::kQueries, chunks = (a.head_dim + kDim - 1) / kDim;
        const Launch how{.kernel = "attention_kernel",
                         .blocks = a.sequences * a.heads * num_tiles * chunks,
                         .threads = kThreads,
                         .shared = S::kShared};
        launch(s, how, attention_kernel<T, kDim, kChunks, kDrop>, Matrix<T>(o), lse.data<float>(), Matrix<const T>(q),
               Matrix<const T>(k), Matrix<const T>(v), p);
      };
      if (p.drops)
        start.template operator()<true>();
      else
        start.template operator()<false>();
    });
  });
}

}  // namespace chiron::gpu
