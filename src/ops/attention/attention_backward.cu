#include <algorithm>

#include "ops/attention/attention_gpu.h"
#include "ops/attention/attention_tiles.cuh"

namespace chiron::gpu {
namespace {

using namespace tiles;

constexpr int kStatThreads = 256;
constexpr int kTeam = 8;  // lanes that take a row of a head together

/// Where a kernel finds what is known of queries t ... of one head: shifts, and `plane` further on the dots.
struct QueryStats {
  float* at;
  int64_t plane, ld;  // ld: from head to head
  explicit QueryStats(const Tensor& t) : at(t.data<float>()), plane(t.shape[1] * t.shape[2]), ld(t.shape[2]) {}
};

/// For each query of each head: the lse in units of log 2 (0 where nothing is seen), and the sum of do * o. A team of
/// lanes per row; bound by reading do and o once.
template <class T>
__global__ void __launch_bounds__(kStatThreads)
    query_stats_kernel(QueryStats stats, Matrix<const T> d_o, Matrix<const T> o, const float* lse, Problem p) {
  constexpr int kTeams = kStatThreads / kTeam;
  const int64_t item = block() * kTeams + thread() / kTeam, heads = int64_t{p.sequences} * p.heads;
  const bool inside = item < heads * stats.ld;
  const int64_t padded_row = item / p.heads, t = padded_row % stats.ld, sequence = padded_row / stats.ld;
  const int64_t head = item % p.heads, row = sequence * p.q_length + t;
  const bool real = inside && t < p.q_length;
  float dot = 0;
  if (real) {
    const T *x = d_o.at + row * d_o.ld + head * p.dim, *y = o.at + row * o.ld + head * p.dim;
    for (int i = lane() % kTeam * kVec<T>; i < p.dim; i += kTeam * kVec<T>) {
      const Floats<T> a = load(x + i, p.dim - i), b = load(y + i, p.dim - i);
      for (int c = 0; c < kVec<T>; ++c) dot += a[c] * b[c];
    }
  }
  for (int mask = 1; mask < kTeam; mask *= 2) dot += shuffle_xor(dot, mask);
  if (!inside || lane() % kTeam != 0) return;
  const float sum = real ? lse[row * p.heads + head] : 0.0f;
  float* const at = stats.at + (sequence * p.heads + head) * stats.ld + t;
  at[0] = sum == -kInfinity ? 0.0f : sum * kLog2E;
  at[stats.plane] = dot;
}

/// Sizes of the backward kernels. A block owns kRows keys (queries) and visits kCols queries (keys) at a time.
template <class T, int kDim, bool kChunks, bool kOwnKeys>
struct Sizes {
  static constexpr bool kFloat = sizeof(T) == 4, kSmall = !kFloat && kDim <= 64;
  static constexpr int kRows = kSmall && !kOwnKeys ? 128 : 64, kCols = kFloat ? 16 : kSmall ? 64 : 32;
  static constexpr int kLd = kDim + 8;  // rows begin in different banks
  static constexpr int kColTiles = kDim / 16, kSteps = kDim / Tile<T>::kK, kTileSteps = 16 / Tile<T>::kK;
  static constexpr int kStages = kChunks ? 1 : 2;
  /// Whether the own rows of the first operand (of the second) stay in registers; they come through the stages' memory.
  static constexpr bool kHold = !kFloat && !kChunks, kHoldSecond = kHold && kSmall == kOwnKeys;
  /// Tiles of 16 columns whose products are under way together.
  static constexpr int kBatch = kChunks ? kCols / 16 : kSmall && kOwnKeys ? 2 : 1;
  static constexpr int kOwn = ((kHold ? 0 : 1) + (kHoldSecond ? 0 : 1)) * kRows * kLd;
  static constexpr int kStage = 2 * kCols * kLd, kScratch = 256 * kThreads / 32;
  static_assert(kRows * kLd <= (kHold ? 0 : kOwn) + kStages * kStage);
  static constexpr int64_t kShared = shared_bytes<T>(kOwn + kStages * kStage) + shared_bytes<T>(kScratch) +
                                     shared_bytes<float>(kStages * 2 * kCols) + shared_bytes<int32_t>(kStages * kCols);
  static_assert(kShared <= 64 << 10);
};

template <class T>
struct Operands {
  Matrix<const T> q, k, v, d_o;
  Matrix<T> dq, dk, dv;
  QueryStats stats;
};

/// FlashAttention-2, algorithm 2, cut in two so that every sum has one owner: with kOwnKeys a block owns keys and adds
/// up their dk and dv over all queries, in order, of all heads that share them; else it owns queries and adds up dq
/// over their keys. Each warp has rows of its own; scores are computed with own rows down and visited ones across.
/// Bound by the matrix units: 4 products and 3.
template <class T, int kDim, bool kChunks, bool kOwnKeys, bool kDrop>
__global__ void __launch_bounds__(kThreads) attention_backward_kernel(Operands<T> x, Problem p) {
  using S = Sizes<T, kDim, kChunks, kOwnKeys>;
  using M = Tile<T>;
  constexpr int kRowTiles = S::kRows / 16 / (kThreads / kLanes), kLd = S::kLd, kBatch = S::kBatch;
  constexpr int kColSlots = M::kRegs / M::kRows, kSlots = kOwnKeys ? kColSlots : M::kRows;
  // Which of a lane's queries a register of a tile belongs to.
  auto slot_of = [](int i) { return kOwnKeys ? M::col_slot(i) : M::row_slot(i); };
  SharedMemory memory;
  const Shared<T> own = memory.take<T>(S::kOwn + S::kStages * S::kStage),
                  second_own = own + (S::kHold ? 0 : S::kRows * kLd);
  const Shared<T> stages = own + S::kOwn, scratch = memory.take<T>(S::kScratch) + warp() * 256;
  const Shared<float> stat_stages = memory.take<float>(S::kStages * 2 * S::kCols);
  const Shared<int32_t> index_stages = memory.take<int32_t>(S::kStages * S::kCols);

  int at = static_cast<int>(block());
  const int chunks = kChunks ? (p.dim + kDim - 1) / kDim : 1, chunk = at % chunks;
  at /= chunks;
  const int group = p.heads / p.kv_heads, num_keys = p.k_length + p.shift;
  // Early keys are seen by most queries, late queries see most keys: those first.
  const int num_tiles = ((kOwnKeys ? num_keys : p.q_length) + S::kRows - 1) / S::kRows;
  const int first = (kOwnKeys ? at % num_tiles : num_tiles - 1 - at % num_tiles) * S::kRows;
  at /= num_tiles;
  const int own_heads = kOwnKeys ? p.kv_heads : p.heads, own_head = at % own_heads, sequence = at / own_heads;
  const int first_head = kOwnKeys ? own_head * group : own_head, kv_head = kOwnKeys ? own_head : own_head / group;
  const int64_t q_row = static_cast<int64_t>(sequence) * p.q_length, k_row = sequence * p.k_stride;
  const int64_t q_col = int64_t{first_head} * p.dim, k_col = int64_t{kv_head} * p.dim;
  auto rows_of = [](const auto& m, int64_t row, int64_t col) { return m.at + row * m.ld + col; };
  const T *const from_q = rows_of(x.q, q_row, q_col), *const from_k = rows_of(x.k, k_row, k_col);
  const T *const from_v = rows_of(x.v, k_row, k_col), *const from_d_o = rows_of(x.d_o, q_row, q_col);
  auto load_own = [&](Shared<T> to, bool second, int c) {
    const T* from = kOwnKeys ? (second ? from_v : from_k) : (second ? from_d_o : from_q);
    const int64_t ld = kOwnKeys ? (second ? x.v.ld : x.k.ld) : (second ? x.d_o.ld : x.q.ld);
    load_tile<S::kRows, kDim, kLd>(to, from + c * kDim, ld, kOwnKeys ? first - p.shift : first,
                                   kOwnKeys ? p.k_length : p.q_length, p.dim - c * kDim, p.aligned);
  };
  // Columns `at_col` ... of the visited side: queries of head first_head + g, or keys.
  auto load_stage = [&](int stage, int g, int at_col, int c) {
    const Shared<T> to = stages + stage * S::kStage;
    const int row = kOwnKeys ? at_col : at_col - p.shift, rows = kOwnKeys ? p.q_length : p.k_length;
    const int64_t col = (kOwnKeys ? int64_t{g} * p.dim : 0) + c * kDim;
    load_tile<S::kCols, kDim, kLd>(to, (kOwnKeys ? from_q : from_k) + col, kOwnKeys ? x.q.ld : x.k.ld, row, rows,
                                   p.dim - c * kDim, p.aligned);
    load_tile<S::kCols, kDim, kLd>(to + S::kCols * kLd, (kOwnKeys ? from_d_o : from_v) + col,
                                   kOwnKeys ? x.d_o.ld : x.v.ld, row, rows, p.dim - c * kDim, p.aligned);
    if constexpr (kOwnKeys) {
      const float* stats = x.stats.at + (int64_t{sequence} * p.heads + first_head + g) * x.stats.ld;
      for (int i = thread(); i < 2 * S::kCols / 4; i += kThreads) {
        const int64_t t = at_col + i * 4 % S::kCols;
        const bool inside = t < x.stats.ld;
        copy_async(stat_stages + (stage * 2 * S::kCols + i * 4),
                   stats + (inside ? t : 0) + (i * 4 < S::kCols ? 0 : x.stats.plane), inside ? 16 : 0);
      }
      if constexpr (kDrop) {
        for (int i = thread(); i < S::kCols; i += kThreads)
          index_stages[stage * S::kCols + i] = at_col + i < p.q_length ? p.index[q_row + at_col + i] : 0;
      }
    }
  };

  // What this warp owns: rows beyond the last query see what that sees, rows beyond the last key are seen by nobody.
  const int mine = warp() * kRowTiles * 16, row = first + mine;
  const int last_row = kOwnKeys ? row + kRowTiles * 16 - 1 : std::min(row + kRowTiles * 16, p.q_length) - 1;
  const bool idle = row >= (kOwnKeys ? num_keys : p.q_length);
  // What the block visits.
  int begin, end;
  if constexpr (kOwnKeys) {
    const int last_key = std::min(first + S::kRows, num_keys) - 1;
    begin = std::clamp(first - p.ahead, 0, p.q_length) / S::kCols * S::kCols;
    end = p.window > 0 ? std::clamp(last_key - p.ahead + p.window, 0, p.q_length) : p.q_length;
    if (p.starts) {
      // Tiles of queries whose documents begin behind these keys come last: count those before, a lane per tile.
      int count = 0;
      for (int t = begin; t < end; t += kLanes * S::kCols) {
        const int of_lane = t + lane() * S::kCols;
        for (uint64_t seen = ballot(of_lane < end && p.first_key(sequence, of_lane) <= last_key); seen & 1; seen >>= 1)
          ++count;
      }
      end = std::min(end, begin + count * S::kCols);
    }
  } else {
    begin = p.first_key(sequence, first) / S::kCols * S::kCols;
    end = p.last_key(std::min(first + S::kRows, p.q_length) - 1) + 1;
  }
  const int heads = begin < end ? (kOwnKeys ? group : 1) : 0;

  typename M::C sum[kRowTiles][S::kColTiles] = {};                   // of ds^T q, or ds k
  typename M::C sum_v[kOwnKeys ? kRowTiles : 1][S::kColTiles] = {};  // of p^T do
  typename M::A held[S::kHold ? kRowTiles : 1][S::kHold ? S::kSteps : 1];
  typename M::A held_second[S::kHoldSecond ? kRowTiles : 1][S::kHoldSecond ? S::kSteps : 1];
  auto load_a = [&](Shared<T> from, int r, int step) {
    return M::load_a(from + ((mine + r * 16) * kLd + step * M::kK), kLd);
  };
  auto hold = [&](auto& to, bool second) {
    load_own(stages, second, 0);
    copy_async_commit();
    copy_async_wait<0>();
    sync_block();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) to[r][step] = load_a(stages, r, step);
    sync_block();
  };
  if constexpr (S::kHold) hold(held, false);
  if constexpr (S::kHoldSecond) hold(held_second, true);
  if constexpr (!kChunks && !S::kHold) load_own(own, false, 0);
  if constexpr (!kChunks && !S::kHoldSecond) load_own(second_own, true, 0);

  const float scale = p.scale * kLog2E;
  // Of own queries: their statistics, from the start.
  float shift[kRowTiles][kSlots], dot[kRowTiles][kSlots];
  int32_t index[kRowTiles];
  auto query = [&](int r, int slot) { return std::min(row + r * 16 + M::row_of(slot), p.q_length - 1); };
  if constexpr (!kOwnKeys) {
    const float* stats = x.stats.at + (int64_t{sequence} * p.heads + own_head) * x.stats.ld;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot)
        shift[r][slot] = stats[query(r, slot)], dot[r][slot] = stats[query(r, slot) + x.stats.plane];
      if constexpr (kDrop) index[r] = p.index[q_row + query(r, lane() % M::kRows)];
    }
  }

  if (!kChunks && heads > 0) load_stage(0, 0, begin, 0);
  copy_async_commit();
  int stage = 0;
  for (int g = 0; g < heads; ++g) {
    const Draws draws = kDrop ? Draws(p, first_head + g) : Draws();
    for (int visited = begin; visited < end; visited += S::kCols) {
      const Shared<T> first_cols = stages + stage * S::kStage, second_cols = first_cols + S::kCols * kLd;
      const Shared<float> stats = stat_stages + stage * 2 * S::kCols;
      const Shared<int32_t> indexes = index_stages + stage * S::kCols;
      if constexpr (!kChunks) {
        copy_async_wait<0>();
        sync_block();
        const bool more = visited + S::kCols < end;
        if (more || g + 1 < heads) load_stage(stage ^ 1, more ? g : g + 1, more ? visited + S::kCols : begin, 0);
        copy_async_commit();
        stage ^= 1;
      }
#pragma unroll
      for (int n0 = 0; n0 < S::kCols / 16; n0 += kBatch) {
        const int col = visited + n0 * 16,
                  last_col = kOwnKeys ? std::min(col + kBatch * 16, p.q_length) - 1 : col + kBatch * 16 - 1;
        bool seen, masked;
        if constexpr (kOwnKeys) {
          seen = !idle && col < p.q_length && p.any(sequence, col, last_col, row, last_row);
          masked = seen && !p.all(sequence, col, last_col, row, last_row);
        } else {
          seen = !idle && p.any(sequence, row, last_row, col, last_col);
          masked = seen && !p.all(sequence, row, last_row, col, last_col);
        }
        typename M::C s[kRowTiles][kBatch] = {}, ds[kRowTiles][kBatch] = {};
        auto add_products = [&] {
#pragma unroll
          for (int step = 0; step < S::kSteps; ++step) {
            typename M::A a[kRowTiles], b[kRowTiles];
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r) {
              if constexpr (S::kHold)
                a[r] = held[r][step];
              else
                a[r] = load_a(own, r, step);
              if constexpr (S::kHoldSecond)
                b[r] = held_second[r][step];
              else
                b[r] = load_a(second_own, r, step);
            }
#pragma unroll
            for (int n = 0; n < kBatch; ++n) {
              const int offset = (n0 + n) * 16 * kLd + step * M::kK;
              const auto with_a = M::load_b(first_cols + offset, kLd), with_b = M::load_b(second_cols + offset, kLd);
#pragma unroll
              for (int r = 0; r < kRowTiles; ++r) {
                M::mma(s[r][n], a[r], with_a);
                M::mma(ds[r][n], b[r], with_b);
              }
            }
          }
        };
        if constexpr (kChunks) {
          // The chunk whose gradient is computed comes last and stays.
          for (int c = 1; c <= chunks; ++c) {
            const int of = (chunk + c) % chunks;
            sync_block();
            load_own(own, false, of);
            load_own(second_own, true, of);
            load_stage(0, g, visited, of);
            copy_async_commit();
            copy_async_wait<0>();
            sync_block();
            if (seen) add_products();
          }
        } else {
          if (seen) add_products();
        }
        if (!seen) continue;

#pragma unroll
        for (int n = 0; n < kBatch; ++n)
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            float* const prob = s[r][n].x;
            float* const up = ds[r][n].x;
            const int of = kOwnKeys ? 0 : r, tile_col = col + n * 16, tile_row = row + r * 16;
            if constexpr (kOwnKeys) {
#pragma unroll
              for (int slot = 0; slot < kSlots; ++slot) {
                shift[0][slot] = stats[(n0 + n) * 16 + M::col_of(slot)];
                dot[0][slot] = stats[S::kCols + (n0 + n) * 16 + M::col_of(slot)];
              }
            }
#pragma unroll
            for (int i = 0; i < M::kRegs; ++i) prob[i] = fast_exp2(fma(prob[i], scale, -shift[of][slot_of(i)]));
            if (masked) {
#pragma unroll
              for (int slot = 0; slot < kSlots; ++slot) {
                const int t = kOwnKeys ? std::min(tile_col + M::col_of(slot), p.q_length - 1) : query(r, slot);
                const int low = p.first_key(sequence, t), high = p.last_key(t);
#pragma unroll
                for (int i = 0; i < M::kRegs; ++i) {
                  const int key = kOwnKeys ? tile_row + M::row(i) : tile_col + M::col(i);
                  if (slot_of(i) == slot && (key < low || key > high)) prob[i] = 0;
                }
              }
            }
            uint32_t dropped = 0;
            if constexpr (kDrop) {
              const uint32_t quad = p.first_group + static_cast<uint32_t>((kOwnKeys ? tile_row : tile_col) / 4);
              if constexpr (kOwnKeys)
                dropped = dropped_down(draws, indexes + (n0 + n) * 16, quad);
              else
                dropped = dropped_across(draws, index[r], quad);
            }
#pragma unroll
            for (int i = 0; i < M::kRegs; ++i) {
              const bool drop = kDrop && (dropped >> i & 1);
              const float kept = kDrop ? (drop ? 0.0f : up[i] * p.kept) : up[i];
              up[i] = prob[i] * (kept - dot[of][slot_of(i)]);
              if (drop) prob[i] = 0;
            }
          }
#pragma unroll
        for (int n = 0; n < kBatch; ++n) {
          typename M::Wide a[kRowTiles], b[kRowTiles];
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            a[r] = M::as_a(ds[r][n], scratch);
            if constexpr (kOwnKeys) b[r] = M::as_a(s[r][n], scratch);
          }
#pragma unroll
          for (int step = 0; step < S::kTileSteps; ++step)
#pragma unroll
            for (int d = 0; d < S::kColTiles; ++d) {
              const int offset = ((n0 + n) * 16 + step * M::kK) * kLd + d * 16;
              const auto with_a = M::load_b_transposed(first_cols + offset, kLd);
#pragma unroll
              for (int r = 0; r < kRowTiles; ++r) M::mma(sum[r][d], M::step(a[r], step), with_a);
              if constexpr (kOwnKeys) {
                const auto with_b = M::load_b_transposed(second_cols + offset, kLd);
#pragma unroll
                for (int r = 0; r < kRowTiles; ++r) M::mma(sum_v[r][d], M::step(b[r], step), with_b);
              }
            }
        }
      }
    }
  }

  copy_async_wait<0>();
  sync_block();
  const Shared<T> area = own + mine * kLd;
  const int cols = p.dim - chunk * kDim;
  const int64_t col = (kOwnKeys ? k_col : q_col) + chunk * kDim;
  auto write = [&](const Matrix<T>& to, const auto& from, float factor) {
    store_tile<kLd>(rows_of(to, kOwnKeys ? k_row : q_row, col), to.ld, kOwnKeys ? row - p.shift : row,
                    kOwnKeys ? p.k_length : p.q_length, cols, from, area, [=](int, int) { return factor; });
  };
  if constexpr (kOwnKeys) {
    write(x.dk, sum, p.scale);
    write(x.dv, sum_v, kDrop ? p.kept : 1.0f);
  } else {
    write(x.dq, sum, p.scale);
  }
}

template <class T, int kDim, bool kChunks, bool kOwnKeys>
void start(Stream& s, const Operands<T>& x, const Problem& p) {
  using S = Sizes<T, kDim, kChunks, kOwnKeys>;
  const int64_t rows = kOwnKeys ? p.k_length + p.shift : p.q_length, heads = kOwnKeys ? p.kv_heads : p.heads;
  if (kOwnKeys ? p.k_length == 0 : p.q_length == 0) return;
  const Launch how{.kernel = kOwnKeys ? "attention_backward_kernel of keys" : "attention_backward_kernel of queries",
                   .blocks = p.sequences * heads * ((rows + S::kRows - 1) / S::kRows) * ((p.dim + kDim - 1) / kDim),
                   .threads = kThreads,
                   .shared = S::kShared};
  launch(s, how,
         p.drops ? attention_backward_kernel<T, kDim, kChunks, kOwnKeys, true>
                 : attention_backward_kernel<T, kDim, kChunks, kOwnKeys, false>,
         x, p);
}

}  // namespace

Shape attention_query_stats(const AttentionShape& a) { return {2, a.sequences * a.heads, (a.q_length + 3) / 4 * 4}; }

void attention_backward(Stream& s, Rows dq, Rows dk, Rows dv, Rows d_o, Rows q, Rows k, Rows v, Rows o, View lse,
                        const AttentionShape& a, const AttentionDropout& dropout, Tensor query_stats) {
  if (a.sequences == 0) return;
  const Problem p(a, dropout, {q, k, v, d_o});
  by_gpu_float(q.dtype, [&]<class T>() {
    const QueryStats stats(query_stats);
    if (query_stats.numel() > 0) {
      constexpr int64_t kTeams = kStatThreads / kTeam;
      launch(s,
             {.kernel = "query_stats_kernel", .blocks = (stats.plane + kTeams - 1) / kTeams, .threads = kStatThreads},
             query_stats_kernel<T>, stats, Matrix<const T>(d_o), Matrix<const T>(o), lse.data<float>(), p);
    }
    const Operands<T> x{Matrix<const T>(q), Matrix<const T>(k), Matrix<const T>(v), Matrix<const T>(d_o),
                        Matrix<T>(dq),      Matrix<T>(dk),      Matrix<T>(dv),      stats};
    by_head_dim<T>(a.head_dim, [&]<int kDim, bool kChunks>() {
      start<T, kDim, kChunks, true>(s, x, p);
      start<T, kDim, kChunks, false>(s, x, p);
    });
  });
}

}  // namespace chiron::gpu
