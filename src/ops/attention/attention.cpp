#include "ops/attention/attention.h"

#include <cmath>
#include <limits>

#include "ops/attention/attention_gpu.h"
#include "ops/attention/tiles.h"

namespace chiron {
namespace {

using namespace tiles;

/// Up to this many queries per sequence are taken one by one: a tile would compute on mostly empty lanes.
constexpr int64_t kFewQueries = 4;

/// One tile of queries of one head. Its scores are held transposed, queries along the lanes, so that maxima, sums and
/// corrections are element-wise and keys and values are read as scalars, as they lie.
template <class A, int W>
struct QueryTile {
  using V = simd::Vec<A>;
  static constexpr A kInfinity = std::numeric_limits<A>::infinity();

  Rows o, q, k, v;
  A* lse;
  AttentionShape a;
  Dropout dropout;

  inline void operator()(int64_t sequence, int64_t head, int64_t t) const {
    const int64_t rows = std::min(kTile, a.q_length - t), row = sequence * a.q_length + t;
    const int64_t dim = a.head_dim, ld = round_up(dim), kv_col = head / (a.heads / a.kv_heads) * dim;
    const int64_t blocks = round_up(rows) / kBlock;
    alignas(64) A qt[kMaxHeadDim * kTile];  // (ld, kTile) queries, scaled and transposed
    alignas(64) A ot[kMaxHeadDim * kTile];  // (ld, kTile) the output, not yet divided by the sums
    alignas(64) A kv[kTile * kMaxHeadDim];  // (kTile, ld) keys, then values
    alignas(64) A p[kTile * kTile];         // (keys, queries) scores, then probabilities
    alignas(64) A highest[kTile], sums[kTile];
    Sight sight;
    sight.look(a, sequence, t, rows);
    load_tile<A>(kv, q, row, head * dim, rows, dim, static_cast<A>(a.scale));
    transpose<A, W>(qt, kTile, kv, ld, round_up(rows), ld);
    for (int64_t i = 0; i < ld * kTile; i += simd::kLanes) simd::store(ot + i, V{});
    int64_t first = a.k_length, last = -1;
    for (int64_t b = 0; b < blocks; ++b) {
      simd::store(highest + b * kBlock, simd::splat(-kInfinity));
      simd::store(sums + b * kBlock, V{});
      first = std::min(first, sight.block[b].first);
      last = std::max(last, sight.block[b].last);
    }

    for (int64_t j = first / kBlock * kBlock; j <= last; j += kTile) {
      const int64_t keys = std::min(kTile, last + 1 - j), key_row = sequence * key_stride(a) + j;
      Run runs[kBlocks];
      const int64_t num_runs = find_runs(runs, round_up(keys) / kBlock, blocks,
                                         [&](int64_t r, int64_t b) { return sight.any(b, j + r * kBlock); });
      if (num_runs == 0) continue;
      load_tile<A>(kv, k, key_row, kv_col, keys, dim, A(1));
      for (int64_t i = 0; i < num_runs; ++i) {
        const Run& r = runs[i];
        const int64_t from = r.begin * kBlock;
        multiply<A, W>(p + r.row * kBlock * kTile + from, kTile, kv + r.row * kBlock * ld, ld, 1, qt + from, kTile,
                       r.rows * kBlock, (r.end - r.begin) * kBlock, ld, false);
      }
      for (int64_t b = 0; b < blocks; ++b)
        softmax_step(p, ot, highest, sums, sight, runs, num_runs, b, j, j + round_up(keys), ld);
      if (dropout.on)
        for (int64_t i = 0; i < num_runs; ++i) drop(p, runs[i], row, rows, head, j);
      load_tile<A>(kv, v, key_row, kv_col, keys, dim, A(1));
      for (int64_t i = 0; i < num_runs; ++i) {
        const Run& r = runs[i];
        const int64_t from = r.begin * kBlock;
        multiply<A, W>(ot + from, kTile, kv + r.row * kBlock * ld, 1, ld, p + r.row * kBlock * kTile + from, kTile, ld,
                       (r.end - r.begin) * kBlock, r.rows * kBlock, true);
      }
    }

    for (int64_t b = 0; b < blocks; ++b) {
      const V sum = simd::load(sums + b * kBlock), inverse = A(1) / sum;
      for (int64_t d = 0; d < ld; ++d) {
        A* at = ot + d * kTile + b * kBlock;
        simd::store(at, sum == A(0) ? V{} : simd::load(at) * inverse);
      }
    }
    transpose<A, W>(kv, ld, ot, kTile, ld, round_up(rows));
    store_rows<A>(o, row, head * dim, rows, dim, kv);
    for (int64_t r = 0; r < rows; ++r)
      lse[(row + r) * a.heads + head] = sums[r] == 0 ? -kInfinity : highest[r] + std::log(sums[r]);
  }

 private:
  /// Turns the scores of query block b and keys [j, end) into e^(score - highest so far), and brings what was summed
  /// before to the new maximum.
  inline void softmax_step(A* p, A* ot, A* highest, A* sums, const Sight& sight, const Run* runs, int64_t num_runs,
                           int64_t b, int64_t j, int64_t end, int64_t ld) const {
    const int64_t col = b * kBlock;
    const bool masked = !sight.all(b, j, end);
    const Mask<A> low = __builtin_convertvector(load_ints(sight.low + col), Mask<A>),
                  high = __builtin_convertvector(load_ints(sight.high + col), Mask<A>);
    const V before = simd::load(highest + col);
    V top[4] = {before, before, before, before};
    bool seen = false;
    for (int64_t i = 0; i < num_runs; ++i) {
      const Run& r = runs[i];
      if (b < r.begin || b >= r.end) continue;
      seen = true;
      A* at = p + r.row * kBlock * kTile + col;
      for (int64_t key = j + r.row * kBlock, stop = key + r.rows * kBlock; key < stop; key += 4)
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u, at += kTile) {
          V score = simd::load(at);
          if (masked) {
            const Mask<A> here = Mask<A>{} + static_cast<int32_t>(key + u);
            score = (here >= low) & (here <= high) ? score : simd::splat(-kInfinity);
            simd::store(at, score);
          }
          top[u] = simd::max<A>(top[u], score);
        }
    }
    if (!seen) return;
    const V now = simd::max<A>(simd::max<A>(top[0], top[1]), simd::max<A>(top[2], top[3]));
    // Where nothing is seen yet, e^(-inf - 0) = 0 instead of e^(-inf + inf).
    const V shift = now == -kInfinity ? V{} : now, correction = simd::exp<A>(before - shift);
    V sum = simd::load(sums + col) * correction;
    for (int64_t i = 0; i < num_runs; ++i) {
      const Run& r = runs[i];
      if (b < r.begin || b >= r.end) continue;
      A* at = p + r.row * kBlock * kTile + col;
      for (int64_t key = 0; key < r.rows * kBlock; ++key, at += kTile) {
        const V e = simd::exp<A>(simd::load(at) - shift);
        simd::store(at, e);
        sum += e;
      }
    }
    simd::store(highest + col, now);
    simd::store(sums + col, sum);
    for (int64_t d = 0; d < ld; ++d) simd::store(ot + d * kTile + col, simd::load(ot + d * kTile + col) * correction);
  }

  inline void drop(A* p, const Run& run, int64_t row, int64_t rows, int64_t head, int64_t j) const {
    const int64_t base = a.k_offset + j, begin = run.row * kBlock, end = begin + run.rows * kBlock;
    for (int64_t b = run.begin; b < run.end; ++b) {
      U32 index{};
      for (int64_t i = 0; i < kBlock; ++i)
        index[i] = static_cast<uint32_t>(dropout.index[row + std::min(b * kBlock + i, rows - 1)]);
      for (int64_t group = (base + begin) / 4; 4 * group < base + end; ++group) {
        auto word = dropout.words(index, simd::splat(static_cast<uint32_t>(group)),
                                  dropout.first_head + static_cast<uint32_t>(head));
        for (int64_t w = 0; w < 4; ++w) {
          const int64_t key = 4 * group + w - base;
          if (key < begin || key >= end) continue;
          A* at = p + key * kTile + b * kBlock;
          auto dropped = __builtin_convertvector(word[static_cast<size_t>(w)] < dropout.threshold, Mask<A>);
          simd::store(at, dropped ? V{} : simd::load(at) * static_cast<A>(dropout.kept));
        }
      }
    }
  }
};

}  // namespace

void tiles::check(const char* op, const Rows& q, const Rows& k, const Rows& v, const Rows& o, const View& lse,
                  const AttentionShape& a, const AttentionDropout& dropout) {
  CHECK(a.sequences >= 0 && a.q_length >= 0 && a.k_length >= 0 && a.heads > 0 && a.kv_heads > 0 &&
            a.heads % a.kv_heads == 0 && a.head_dim > 0 && a.head_dim <= kMaxHeadDim && a.scale > 0 && a.window >= 0 &&
            a.q_offset >= 0 && a.k_offset >= 0 && (a.k_stride == 0 || a.k_stride >= a.k_length),
        "{}: {} sequences of {} queries and {} keys ({} apart), {} heads on {} kv heads of {}, scale {}, window {}", op,
        a.sequences, a.q_length, a.k_length, a.k_stride, a.heads, a.kv_heads, a.head_dim, a.scale, a.window);
  const int64_t num_keys = a.sequences ? (a.sequences - 1) * key_stride(a) + a.k_length : 0;
  CHECK(q.rows == a.sequences * a.q_length && q.cols == a.heads * a.head_dim && o.rows == q.rows && o.cols == q.cols &&
            k.rows >= num_keys && k.cols == a.kv_heads * a.head_dim && v.rows >= num_keys && v.cols == k.cols &&
            k.dtype == q.dtype && v.dtype == q.dtype && o.dtype == q.dtype,
        "{}: q ({}, {}), k ({}, {}), v ({}, {}), o ({}, {})", op, q.rows, q.cols, k.rows, k.cols, v.rows, v.cols,
        o.rows, o.cols);
  CHECK(lse.numel() == q.rows * a.heads && lse.dtype == acc_dtype(q.dtype), "{}: lse {} {}", op, name_of(lse.dtype),
        lse.shape.str());
  CHECK(!a.starts.present() || (a.starts.numel() == q.rows && a.starts.dtype == DType::i32), "{}: document starts {}",
        op, a.starts.shape.str());
  CHECK(dropout.p >= 0 && dropout.p < 1, "{}: dropout {}", op, dropout.p);
  CHECK(dropout.p == 0 || (dropout.index.numel() == q.rows && dropout.index.dtype == DType::i32),
        "{}: dropout without the index of each query", op);
}

void attention(Stream& s, Rows o, Tensor lse, Rows q, Rows k, Rows v, const AttentionShape& a,
               const AttentionDropout& dropout, Stack& temp) {
  tiles::check("attention", q, k, v, o, lse, a, dropout);
  Scope scope(temp);
  Tensor partial;
  if constexpr (gpu::kBuilt) {
    const int64_t splits = s.on_gpu() ? gpu::attention_splits(a) : 1;
    if (splits > 1) partial = temp.push(DType::f32, {q.rows, a.heads, splits, a.head_dim + 1});
  }
  OpScope op(s, "attention", {o, lse}, {q, k, v}, 4 * static_cast<double>(a.head_dim) * visible_pairs(a));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::attention(s, o, lse, q, k, v, a, dropout, partial);
  const Dropout drop = Dropout::of(dropout);
  if (a.q_length <= kFewQueries) {
    attend_one_by_one(s, o, lse, q, k, v, a, drop);
    return;
  }
  const int64_t tiles_of_head = (a.q_length + kTile - 1) / kTile;
  by_lanes(q.dtype, [&]<class A, int W, CpuLevel kLevel>() {
    QueryTile<A, W> tile{o, q, k, v, lse.data<A>(), a, drop};
    s.parallel_at<kLevel>(a.sequences * a.heads * tiles_of_head, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / tiles_of_head;
        // Late queries see more keys: the long tiles first, so that no thread starts one at the end.
        tile(head / a.heads, head % a.heads, (tiles_of_head - 1 - i % tiles_of_head) * kTile);
      }
    });
  });
}

}  // namespace chiron
