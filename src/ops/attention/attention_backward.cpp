#include <cmath>
#include <limits>

#include "ops/attention/attention_gpu.h"
#include "ops/attention/tiles.h"

namespace chiron {
namespace {

using namespace tiles;

constexpr int64_t kRowGrain = 16;
/// (sequence, kv head) pairs that hold a float32 copy of their dq at once, where dq itself is narrower.
constexpr int64_t kWave = 64;

/// All keys of one kv head of one sequence. Key tiles outside, query tiles inside: dk and dv of a tile stay in local
/// memory over all queries and all heads that share it, dq is added up in key order. Keys lie along the lanes.
template <class A, int W>
struct KeyHead {
  using V = simd::Vec<A>;
  static constexpr A kInfinity = std::numeric_limits<A>::infinity();

  Rows dq, dk, dv, d_o, q, k, v;
  const A *lse, *delta;
  AttentionShape a;
  Dropout dropout;

  /// Where dq is added up: the unit's first query and head, elements between queries, elements between heads.
  struct Sums {
    A* at;
    int64_t query, head;
  };

  inline void operator()(int64_t sequence, int64_t kv_head, const Sums& sums) const {
    const int64_t dim = a.head_dim, ld = round_up(dim), group = a.heads / a.kv_heads;
    for (int64_t g = 0; g < group; ++g)
      for (int64_t t = 0; t < a.q_length; ++t)
        for (int64_t d = 0; d < dim; ++d) sums.at[g * sums.head + t * sums.query + d] = 0;
    alignas(64) A kt[kMaxHeadDim * kTile], vt[kMaxHeadDim * kTile];  // (ld, kTile) keys and values, transposed
    alignas(64) A keys[kTile * kMaxHeadDim];                         // (kTile, ld) scaled keys
    alignas(64) A sum_k[kTile * kMaxHeadDim], sum_v[kTile * kMaxHeadDim];
    for (int64_t j = 0; j < a.k_length; j += kTile) {
      const int64_t num_keys = std::min(kTile, a.k_length - j), padded = round_up(num_keys);
      const int64_t key_row = sequence * key_stride(a) + j;
      load_tile<A>(keys, v, key_row, kv_head * dim, num_keys, dim, A(1));
      transpose<A, W>(vt, kTile, keys, ld, padded, ld);
      load_tile<A>(keys, k, key_row, kv_head * dim, num_keys, dim, A(1));
      transpose<A, W>(kt, kTile, keys, ld, padded, ld);
      for (int64_t i = 0; i < padded * ld; i += simd::kLanes) {
        simd::store(keys + i, simd::load(keys + i) * static_cast<A>(a.scale));
        simd::store(sum_k + i, V{});
        simd::store(sum_v + i, V{});
      }
      // Queries before the tile's first key do not see it, nor those a window after its last one.
      const int64_t ahead = a.k_offset - a.q_offset + j;
      const int64_t begin = std::clamp<int64_t>(ahead, 0, a.q_length) / kBlock * kBlock;
      const int64_t end = a.window > 0 ? std::min(a.q_length, ahead + num_keys + a.window - 1) : a.q_length;
      for (int64_t g = 0; g < group; ++g)
        for (int64_t t = begin; t < end; t += kTile)
          pair(sequence, kv_head * group + g, t, j, num_keys, kt, vt, keys, sum_k, sum_v,
               sums.at + g * sums.head + t * sums.query, sums.query);
      store_rows<A>(dk, key_row, kv_head * dim, num_keys, dim, sum_k);
      store_rows<A>(dv, key_row, kv_head * dim, num_keys, dim, sum_v);
    }
  }

 private:
  inline void pair(int64_t sequence, int64_t head, int64_t t, int64_t j, int64_t num_keys, const A* kt, const A* vt,
                   const A* keys, A* sum_k, A* sum_v, A* sum_q, int64_t ld_sum) const {
    const int64_t rows = std::min(kTile, a.q_length - t), row = sequence * a.q_length + t;
    const int64_t dim = a.head_dim, ld = round_up(dim);
    Sight sight;
    sight.look(a, sequence, t, rows);
    Run runs[kBlocks];
    const int64_t num_runs = find_runs(runs, round_up(rows) / kBlock, round_up(num_keys) / kBlock,
                                       [&](int64_t b, int64_t c) { return sight.any(b, j + c * kBlock); });
    if (num_runs == 0) return;
    alignas(64) A queries[kTile * kMaxHeadDim], ups[kTile * kMaxHeadDim];  // (kTile, ld) scaled q, and do
    alignas(64) A p[kTile * kTile], dp[kTile * kTile];                     // (queries, keys)
    alignas(64) A out[kTile * kMaxHeadDim];                                // (kTile, ld) this pair's part of dq
    load_tile<A>(queries, q, row, head * dim, rows, dim, static_cast<A>(a.scale));
    load_tile<A>(ups, d_o, row, head * dim, rows, dim, A(1));
    for (int64_t i = 0; i < num_runs; ++i) {
      const Run& r = runs[i];
      const int64_t first = r.row * kBlock, num = r.rows * kBlock, col = r.begin * kBlock;
      const int64_t cols = (r.end - r.begin) * kBlock;
      for (bool value : {false, true})
        multiply<A, W>((value ? dp : p) + first * kTile + col, kTile, (value ? ups : queries) + first * ld, ld, 1,
                       (value ? vt : kt) + col, kTile, num, cols, ld, false);
      score_gradients(p, dp, sight, r, row, rows, head, j);
      for (bool value : {false, true})
        multiply<A, W>((value ? sum_v : sum_k) + col * ld, ld, (value ? p : dp) + first * kTile + col, 1, kTile,
                       (value ? ups : queries) + first * ld, ld, cols, ld, num, true);
      multiply<A, W>(out + first * ld, ld, dp + first * kTile + col, kTile, 1, keys + col * ld, ld, num, ld, cols,
                     false);
      for (int64_t r = first; r < std::min(rows, first + num); ++r) {
        A *to = sum_q + r * ld_sum, *from = out + r * ld;
        int64_t d = 0;
        for (; d + simd::kLanes <= dim; d += simd::kLanes)
          simd::store(to + d, simd::load(to + d) + simd::load(from + d));
        for (; d < dim; ++d) to[d] += from[d];
      }
    }
  }

  /// p: scores -> probabilities after dropout; dp: do v^T -> gradient of the scores.
  inline void score_gradients(A* p, A* dp, const Sight& sight, const Run& run, int64_t row, int64_t rows, int64_t head,
                              int64_t j) const {
    alignas(64) A drawn[2 * kTile];
    const A* factor = drawn;
    V lane{};
    for (int i = 0; i < kBlock; ++i) lane[i] = static_cast<A>(i);
    const Mask<A> lanes = __builtin_convertvector(lane, Mask<A>);
    for (int64_t r = run.row * kBlock; r < (run.row + run.rows) * kBlock; ++r) {
      const bool real = r < rows;
      const int64_t at = (row + r) * a.heads + head;
      A shift = real ? lse[at] : A(0);
      if (shift == -kInfinity) shift = 0;  // sees nothing: e^(-inf - 0) = 0
      const A dot = real ? delta[at] : A(0);
      const bool masked = !sight.all(r / kBlock, j + run.begin * kBlock, j + run.end * kBlock);
      if (dropout.on && real) factor = dropout.factors(drawn, row + r, a.k_offset + j, head);
      for (int64_t c = run.begin * kBlock; c < run.end * kBlock; c += kBlock) {
        V score = simd::load(p + r * kTile + c), up = simd::load(dp + r * kTile + c);
        if (masked) {
          const Mask<A> key = lanes + static_cast<int32_t>(j + c);
          score = (key >= sight.low[r]) & (key <= sight.high[r]) ? score : simd::splat(-kInfinity);
        }
        const V prob = simd::exp<A>(score - shift);
        V kept = prob;
        if (dropout.on && real) {
          const V f = simd::load(factor + c);
          kept = prob * f;
          up = up * f;
        }
        simd::store(p + r * kTile + c, kept);
        simd::store(dp + r * kTile + c, prob * (up - dot));
      }
    }
  }
};

/// delta[row][head] = sum over the head's elements of do * o.
template <class T>
void row_sums(Stream& s, Acc<T>* delta, const Rows& d_o, const Rows& o, int64_t heads, int64_t dim) {
  using A = Acc<T>;
  const T *up = d_o.data<T>(), *out = o.data<T>();
  const int64_t ld_up = d_o.ld, ld_out = o.ld;
  s.parallel(o.rows, kRowGrain, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < heads; ++h) {
        const T *x = up + r * ld_up + h * dim, *y = out + r * ld_out + h * dim;
        simd::Vec<A> sum{};
        int64_t i = 0;
        for (; i + simd::kLanes <= dim; i += simd::kLanes) sum += simd::load(x + i) * simd::load(y + i);
        if (i < dim) sum += simd::load(x + i, dim - i) * simd::load(y + i, dim - i);
        delta[r * heads + h] = simd::sum<A>(sum);
      }
  });
}

}  // namespace

void attention_backward(Stream& s, Rows dq, Rows dk, Rows dv, Rows d_o, Rows q, Rows k, Rows v, Rows o, View lse,
                        const AttentionShape& a, const AttentionDropout& dropout, Stack& temp) {
  tiles::check("attention_backward", q, k, v, o, lse, a, dropout);
  tiles::check("attention_backward", dq, dk, dv, d_o, lse, a, dropout);
  const int64_t group = a.heads / a.kv_heads, units = a.sequences * a.kv_heads, ld = round_up(a.head_dim);
  const DType acc = acc_dtype(q.dtype);
  Scope scope(temp);
  Tensor stats, delta, wide;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) stats = temp.push(DType::f32, gpu::attention_query_stats(a));
  if (!s.on_gpu()) {
    delta = temp.push(acc, {q.rows, a.heads});
    if (q.dtype != acc) wide = temp.push(acc, {std::min(units, kWave) * group * a.q_length, ld});
  }
  OpScope op(s, "attention_backward", {dq, dk, dv}, {d_o, q, k, v, o, lse},
             10 * static_cast<double>(a.head_dim) * visible_pairs(a));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::attention_backward(s, dq, dk, dv, d_o, q, k, v, o, lse, a, dropout, stats);
  by_float(q.dtype, [&]<class T>() { row_sums<T>(s, delta.data<Acc<T>>(), d_o, o, a.heads, a.head_dim); });
  const Dropout drop = Dropout::of(dropout);
  by_lanes(q.dtype, [&]<class A, int W, CpuLevel kLevel>() {
    KeyHead<A, W> head{dq, dk, dv, d_o, q, k, v, lse.data<A>(), delta.data<A>(), a, drop};
    // Narrow kinds add dq up in `wide`, a wave of units at a time, and round it once at the end.
    const bool narrow = wide.present();
    A* const at = narrow ? wide.data<A>() : dq.data<A>();
    const int64_t wave = narrow ? kWave : units, wide_head = a.q_length * ld;
    for (int64_t first = 0; first < units; first += wave)
      s.parallel_at<kLevel>(std::min(wave, units - first), 1, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t sequence = (first + i) / a.kv_heads, kv_head = (first + i) % a.kv_heads;
          const int64_t row = sequence * a.q_length, col = kv_head * group * a.head_dim;
          A* const sums = at + (narrow ? i * group * wide_head : row * dq.ld + col);
          head(sequence, kv_head, {sums, narrow ? ld : dq.ld, narrow ? wide_head : a.head_dim});
          for (int64_t g = 0; narrow && g < group; ++g)
            store_rows<A>(dq, row, col + g * a.head_dim, a.q_length, a.head_dim, sums + g * wide_head);
        }
      });
  });
}

}  // namespace chiron
