#pragma once

#include <cmath>
#include <limits>

#include "core/launch.h"
#include "gpu/fragment.h"
#include "gpu/vec.h"
#include "ops/attention/attention.h"

/// What attention's GPU kernels share. Private to this folder.
namespace chiron::gpu::tiles {

inline constexpr int kThreads = 128;  ///< of a block that works on tiles
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504088896341f;

template <class T>
struct Matrix {
  T* at;
  int64_t ld;
  explicit Matrix(const Rows& r) : at(r.data<std::remove_const_t<T>>()), ld(r.ld) {}
};

/// AttentionShape and AttentionDropout as kernels take them. Keys are numbered from the multiple of 4 at or before
/// k_offset, so that draws come in aligned groups: key j stands in row j - shift.
struct Problem {
  int q_length, k_length, sequences, heads, kv_heads, dim;
  int64_t k_stride;
  int shift;     ///< k_offset % 4
  int ahead;     ///< query t sees keys up to t + ahead
  int window;    ///< 0: none
  int origin;    ///< number of the key at offset 0, which may be far below 0
  bool aligned;  ///< all rows of all heads begin at multiples of 16 bytes
  float scale;
  const int32_t* starts;

  bool drops;
  uint32_t threshold, first_head, first_group;
  float kept;  ///< what a kept probability is multiplied by
  const int32_t* index;
  RandomKey key;

  Problem(const AttentionShape& a, const AttentionDropout& d, std::initializer_list<Rows> rows)
      : q_length(static_cast<int>(a.q_length)),
        k_length(static_cast<int>(a.k_length)),
        sequences(static_cast<int>(a.sequences)),
        heads(static_cast<int>(a.heads)),
        kv_heads(static_cast<int>(a.kv_heads)),
        dim(static_cast<int>(a.head_dim)),
        k_stride(a.k_stride ? a.k_stride : a.k_length),
        shift(static_cast<int>(a.k_offset % 4)),
        ahead(static_cast<int>(a.q_offset - a.k_offset) + shift),
        window(a.window < a.q_offset + a.q_length ? static_cast<int>(a.window) : 0),
        origin(shift - static_cast<int>(a.k_offset)),
        aligned(true),
        scale(a.scale),
        starts(a.starts.present() ? a.starts.data<int32_t>() : nullptr),
        drops(d.p > 0),
        threshold(drop_threshold(d.p)),
        first_head(static_cast<uint32_t>(d.first_head)),
        first_group(static_cast<uint32_t>(a.k_offset / 4)),
        kept(static_cast<float>(1 / (1 - static_cast<double>(d.p)))),
        index(drops ? d.index.data<int32_t>() : nullptr),
        key(d.key) {
    CHECK(std::max({a.q_offset + a.q_length, a.k_offset + a.k_length, a.sequences}) < int64_t{1} << 30,
          "attention over offsets beyond 2^30");
    auto whole = [](int64_t bytes) { return bytes % 16 == 0; };
    for (const Rows& r : rows) {
      const int64_t size = size_of(r.dtype);
      aligned &= whole(static_cast<int64_t>(r.at)) && whole(r.ld * size) && whole(dim * size);
    }
  }

  /// The first and the last key that a query sees; none if first > last. Neither falls from query to query.
  __device__ int first_key(int sequence, int t) const {
    int first = shift;
    if (window > 0) first = std::max(first, t + ahead - window + 1);
    if (starts) first = std::max(first, starts[static_cast<int64_t>(sequence) * q_length + t] + origin);
    return first;
  }
  __device__ int last_key(int t) const { return std::min(t + ahead, k_length - 1 + shift); }
  /// Whether some query of [t, last] sees some key of [j, last_j]; whether each sees all of them.
  __device__ bool any(int sequence, int t, int last, int j, int last_j) const {
    return last_key(last) >= j && first_key(sequence, t) <= last_j;
  }
  __device__ bool all(int sequence, int t, int last, int j, int last_j) const {
    return last_key(t) >= last_j && first_key(sequence, last) <= j;
  }
};

/// Copies rows first ... first + kRows of a matrix of `rows` rows into shared memory, columns beyond `cols` and rows
/// beyond either end as zeros. Not waiting where p.aligned holds; the caller commits.
template <int kRows, int kCols, int kLd, class T>
__device__ inline void load_tile(Shared<T> to, const T* from, int64_t ld, int first, int rows, int cols, bool aligned) {
  constexpr int kPieces = kCols / kVec<T>;
  static_assert(kThreads % kPieces == 0 && kRows * kPieces % kThreads == 0);
  if (aligned) {
    constexpr int kStep = kThreads / kPieces;
    const int r = thread() / kPieces, c = thread() % kPieces * kVec<T>;
    const T* p = from + (int64_t{first} + r) * ld + c;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep, p += kStep * ld) {
      const bool inside = first + r + i >= 0 && first + r + i < rows && c < cols;
      copy_async(to + ((r + i) * kLd + c), inside ? p : from, inside ? 16 : 0);
    }
  } else {
#pragma unroll 1
    for (int i = thread(); i < kRows * kCols; i += kThreads) {
      const int r = i / kCols, c = i % kCols, row = first + r;
      to[r * kLd + c] = row >= 0 && row < rows && c < cols ? from[row * ld + c] : T{};
    }
  }
}

/// Rounds a warp's tiles times `factor` of their row, and stores them as rows first ... of a matrix of `rows` rows.
/// area: that many rows in shared memory, of this warp alone.
template <int kLd, int kRowTiles, int kColTiles, class T, class F>
__device__ inline void store_tile(T* to, int64_t ld, int first, int rows, int cols,
                                  const TileSums::C (&c)[kRowTiles][kColTiles], Shared<T> area, F&& factor) {
  using M = TileSums;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int d = 0; d < kColTiles; ++d)
#pragma unroll
      for (int i = 0; i < M::kRegs; ++i)
        area[(r * 16 + M::row(i)) * kLd + d * 16 + M::col(i)] = from_float<T>(c[r][d].x[i] * factor(r, M::row_slot(i)));
  sync_warp();
  constexpr int kPieces = kColTiles * 16 / kVec<T>;
  for (int i = lane(); i < kRowTiles * 16 * kPieces; i += kLanes) {
    const int r = i / kPieces, col = i % kPieces * kVec<T>, row = first + r;
    if (row < 0 || row >= rows || col >= cols) continue;
    T* p = to + row * ld + col;
    if (col + kVec<T> <= cols && is_aligned16(p))
      store16(p, load16(&area[r * kLd + col]));
    else
      for (int j = 0; j < kVec<T> && col + j < cols; ++j) p[j] = area[r * kLd + col + j];
  }
  sync_warp();
}

/// What the draws of one head have in common.
struct Draws {
  std::array<uint32_t, 2> key{};
  uint32_t threshold = 0, head = 0;
  Draws() = default;
  __device__ Draws(const Problem& p, int of_head)
      : key(p.key.key()), threshold(p.threshold), head(p.first_head + static_cast<uint32_t>(of_head)) {}
  __device__ std::array<uint32_t, 4> words(int32_t index, uint32_t group) const {
    return philox({static_cast<uint32_t>(index), group, head, 0}, key);
  }
};

/// kCount lanes, kStep apart, have four words each: lane u gets part u of everybody's words, in the order of lanes.
template <int kCount, int kStep>
__device__ inline void exchange_words(std::array<uint32_t, 4>& w) {
#pragma unroll
  for (int bit = 1; bit < kCount; bit *= 2) {
    const bool upper = (lane() / kStep & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i * kCount / 4 & bit) continue;
      const int j = i + 4 / kCount * bit;
      const uint32_t got = shuffle_xor(upper ? w[i] : w[j], bit * kStep);
      w[i] = upper ? got : w[i];
      w[j] = upper ? w[j] : got;
    }
  }
}

/// Bit i: register i of a tile of queries x keys is dropped. index: of the query of row slot lane() % kRows. group: of
/// the tile's first key. Each draw is made once in a warp: lanes share the words of four keys.
__device__ inline uint32_t dropped_across(const Draws& draws, int32_t index, uint32_t group) {
  using M = TileSums;
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < M::kRegs; i += 4) {
    auto w = draws.words(index, group + static_cast<uint32_t>(M::col(i) / 4));
    exchange_words<M::kRows, 1>(w);
#pragma unroll
    for (int j = 0; j < 4; ++j) bits |= (w[j] < draws.threshold ? 1u : 0u) << (i + j);
  }
  return bits;
}

/// The same for a tile of keys x queries. index: of the tile's queries.
__device__ inline uint32_t dropped_down(const Draws& draws, Shared<int32_t> index, uint32_t group) {
  using M = TileSums;
  uint32_t bits = 0;
  if constexpr (M::kRows == 2) {
    const int32_t mine = index[M::col_of(lane() / M::kRowLanes % 4)];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      auto w = draws.words(mine, group + static_cast<uint32_t>(M::row_of(slot) / 4));
      exchange_words<4, M::kRowLanes>(w);
#pragma unroll
      for (int i = 0; i < M::kRegs; ++i)
        if (M::row_slot(i) == slot) bits |= (w[M::col_slot(i)] < draws.threshold ? 1u : 0u) << i;
    }
  } else {
    // A lane has the four keys of a group.
    const auto w = draws.words(index[M::col_of(0)], group + static_cast<uint32_t>(M::row_of(0) / 4));
#pragma unroll
    for (int i = 0; i < M::kRegs; ++i) bits |= (w[M::row_slot(i)] < draws.threshold ? 1u : 0u) << i;
  }
  return bits;
}

/// f.template operator()<kDim, kChunks>(): the columns of a tile, and whether a head has more of them, which are then
/// taken kDim at a time.
template <class T, class F>
void by_head_dim(int64_t dim, F&& f) {
  constexpr int kMost = sizeof(T) == 4 ? 64 : 128;
  if (dim <= 64) return f.template operator()<64, false>();
  if (kMost > 64 && dim <= kMost) return f.template operator()<kMost, false>();
  f.template operator()<kMost, true>();
}

/// The forward op for few queries per sequence.
void attend_few(Stream& s, const Rows& o, Tensor lse, const Rows& q, const Rows& k, const Rows& v, const Problem& p,
                int64_t splits, Tensor partial);

}  // namespace chiron::gpu::tiles
