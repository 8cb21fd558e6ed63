#pragma once

#include <algorithm>
#include <cstdint>

#include "core/simd.h"
#include "ops/attention/attention.h"
#include "ops/attention/draws.h"
#include "ops/attention/products.h"

/// What attention's forward and backward op share: tiles of kTile queries x kTile keys, how they are read and written,
/// and which parts of a tile the mask leaves. Private to this folder.
namespace chiron::tiles {

inline int64_t round_up(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

/// f.template operator()<T>() for the element types that are computed with in A. Unlike by_float it calls nothing that
/// could not be inlined into a kernel.
template <class A, class F>
inline void by_element(DType dtype, F&& f) {
  if constexpr (std::is_same_v<A, double>)
    f.template operator()<double>();
  else if (dtype == DType::f32)
    f.template operator()<float>();
  else if (dtype == DType::bf16)
    f.template operator()<bf16>();
  else
    f.template operator()<f16>();
}

/// to (rows x round_up(cols), zeros beyond cols) = scale * rows `row`... of columns `col`... of `from`.
template <class A>
inline void load_rows(A* to, const Rows& from, int64_t row, int64_t col, int64_t rows, int64_t cols, A scale) {
  const int64_t ldt = round_up(cols);
  by_element<A>(from.dtype, [&]<class T>() {
    const T* p = reinterpret_cast<const T*>(from.at) + row * from.ld + col;
    for (int64_t r = 0; r < rows; ++r, p += from.ld) {
      int64_t i = 0;
      for (; i + simd::kLanes <= cols; i += simd::kLanes) simd::store(to + r * ldt + i, simd::load(p + i) * scale);
      if (i < cols) simd::store(to + r * ldt + i, simd::load(p + i, cols - i) * scale);
    }
  });
}

/// The same, with rows of zeros up to round_up(rows).
template <class A>
inline void load_tile(A* to, const Rows& from, int64_t row, int64_t col, int64_t rows, int64_t cols, A scale) {
  load_rows<A>(to, from, row, col, rows, cols, scale);
  const int64_t ldt = round_up(cols);
  for (int64_t i = rows * ldt; i < round_up(rows) * ldt; i += simd::kLanes) simd::store(to + i, simd::Vec<A>{});
}

/// The reverse: rows `row`... of columns `col`... of `to` = from (rows x round_up(cols)), rounded to its type.
template <class A>
inline void store_rows(const Rows& to, int64_t row, int64_t col, int64_t rows, int64_t cols, const A* from) {
  const int64_t ldf = round_up(cols);
  by_element<A>(to.dtype, [&]<class T>() {
    T* p = reinterpret_cast<T*>(to.at) + row * to.ld + col;
    for (int64_t r = 0; r < rows; ++r, p += to.ld) {
      int64_t i = 0;
      for (; i + simd::kLanes <= cols; i += simd::kLanes) simd::store(p + i, simd::load(from + r * ldf + i));
      if (i < cols) simd::store(p + i, simd::load(from + r * ldf + i), cols - i);
    }
  });
}

/// Which keys the queries of a tile see.
struct Sight {
  alignas(64) int32_t low[kTile], high[kTile];  ///< query r sees keys low[r] <= j <= high[r], numbered from k_offset
  struct Block {
    int64_t first, last;              ///< no query of the block sees a key outside [first, last]
    int64_t common_low, common_high;  ///< every query sees all keys within [common_low, common_high]
  } block[kBlocks];

  /// Queries t ... t + rows of a sequence. Rows beyond repeat the last one, so that they neither widen what is seen nor
  /// force a mask.
  inline void look(const AttentionShape& a, int64_t sequence, int64_t t, int64_t rows) {
    const int32_t* starts =
        a.starts.at ? reinterpret_cast<const int32_t*>(a.starts.at) + sequence * a.q_length : nullptr;
    for (int64_t r = 0; r < round_up(rows); ++r) {
      const int64_t row = std::min(r, rows - 1), at = a.q_offset + t + row;
      int64_t from = starts ? starts[t + row] : 0;
      if (a.window > 0) from = std::max(from, at - a.window + 1);
      const int64_t first = std::max<int64_t>(0, from - a.k_offset), last = std::min(at - a.k_offset, a.k_length - 1);
      // An empty range is kept as [k_length, -1]: it widens no block.
      low[r] = static_cast<int32_t>(first <= last ? first : a.k_length);
      high[r] = static_cast<int32_t>(first <= last ? last : -1);
    }
    for (int64_t b = 0; b * kBlock < rows; ++b) {
      int32_t first = low[b * kBlock], last = high[b * kBlock], common_low = first, common_high = last;
      for (int64_t r = b * kBlock + 1; r < (b + 1) * kBlock; ++r) {
        first = std::min(first, low[r]);
        last = std::max(last, high[r]);
        common_low = std::max(common_low, low[r]);
        common_high = std::min(common_high, high[r]);
      }
      block[b] = {first, last, common_low, common_high};
    }
  }
  /// Whether some query of block b sees some of the kBlock keys from j on.
  bool any(int64_t b, int64_t j) const { return block[b].last >= j && block[b].first < j + kBlock; }
  /// Whether each query of block b sees all keys from j up to `end`.
  bool all(int64_t b, int64_t j, int64_t end) const {
    return block[b].common_low <= j && block[b].common_high >= end - 1;
  }
};

/// One stretch of a tile's rows (in blocks) that needs the same columns [begin, end), in blocks.
struct Run {
  int64_t row, rows, begin, end;
};

/// Cuts a tile of `rows` x `cols` blocks into runs; any(row, col) says whether a block is needed. Returns their number.
template <class F>
inline int64_t find_runs(Run* runs, int64_t rows, int64_t cols, F&& any) {
  int64_t n = 0;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t begin = 0, end = cols;
    while (begin < end && !any(r, begin)) ++begin;
    while (end > begin && !any(r, end - 1)) --end;
    if (begin == end) continue;
    if (n > 0 && runs[n - 1].row + runs[n - 1].rows == r && runs[n - 1].begin == begin && runs[n - 1].end == end)
      ++runs[n - 1].rows;
    else
      runs[n++] = {r, 1, begin, end};
  }
  return n;
}

inline simd::I32 load_ints(const int32_t* p) {
  simd::I32 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Multiply-adds per head dimension that the mask leaves if each sequence is one document.
inline double visible_pairs(const AttentionShape& a) {
  double n = 0;
  for (int64_t t = 0; t < a.q_length; ++t) {
    const int64_t at = a.q_offset + t, from = a.window > 0 ? std::max<int64_t>(0, at - a.window + 1) : 0;
    n += static_cast<double>(
        std::max<int64_t>(0, std::min(at - a.k_offset, a.k_length - 1) - std::max<int64_t>(0, from - a.k_offset) + 1));
  }
  return n * static_cast<double>(a.sequences * a.heads);
}

/// Throws Bug if shapes, kinds and heads do not fit together.
void check(const char* op, const Rows& q, const Rows& k, const Rows& v, const Rows& o, const View& lse,
           const AttentionShape& shape, const AttentionDropout& dropout);

/// The forward op for few queries per sequence: one by one, their dot products along the head dimension.
void attend_one_by_one(Stream& s, const Rows& o, Tensor lse, const Rows& q, const Rows& k, const Rows& v,
                       const AttentionShape& shape, const Dropout& dropout);

/// Rows between the keys of one sequence and those of the next.
inline int64_t key_stride(const AttentionShape& a) { return a.k_stride ? a.k_stride : a.k_length; }

}  // namespace chiron::tiles
