#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/simd.h"
#include "ops/attention/attention.h"

/// What attention's forward and backward op share: tiles of 64 queries x 64 keys, their products, and which parts of a
/// tile the mask leaves. Private to this folder. Everything is inline, since Stream::parallel compiles its loops for
/// three instruction sets.
namespace chiron::tiles {

inline constexpr int64_t kTile = 64;   ///< queries and keys of a tile
inline constexpr int64_t kBlock = 16;  ///< masked parts of a tile are skipped in blocks of kBlock x kBlock
inline constexpr int64_t kBlocks = kTile / kBlock;

inline int64_t round_up(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

/// A vector as wide as a register: products keep their sums in these. Vec would be two registers under AVX2, and the
/// compiler keeps arrays of such pairs in memory.
template <class A, int W>
using Lanes [[gnu::vector_size(W * sizeof(A))]] = A;

template <class A, int W>
inline Lanes<A, W> load_lanes(const A* p) {
  Lanes<A, W> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Calls f.template operator()<A, W, kLevel>(): the type of arithmetic on `dtype`, the lanes of a register, and the
/// instruction set to compile for. double serves gradient checks and is not tuned.
template <class F>
void by_lanes(DType dtype, F&& f) {
  if (dtype == DType::f64) return f.template operator()<double, 2, CpuLevel::baseline>();
#if defined(__x86_64__)
  if (cpu_level() == CpuLevel::avx512) return f.template operator()<float, 16, CpuLevel::avx512>();
  if (cpu_level() == CpuLevel::avx2) return f.template operator()<float, 8, CpuLevel::avx2>();
#endif
  f.template operator()<float, 4, CpuLevel::baseline>();
}

/// c[m][n] (+)= sum over k < depth of a[m * row + k * step] * b[k * ldb + n]: M rows, N vectors, all sums in registers.
template <class A, int W, int M, int N>
inline void multiply_block(A* c, int64_t ldc, const A* a, int64_t row, int64_t step, const A* b, int64_t ldb,
                           int64_t depth, bool add) {
  using V = Lanes<A, W>;
  V sum[M][N];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) sum[m][n] = add ? load_lanes<A, W>(c + m * ldc + n * W) : V{};
  for (int64_t k = 0; k < depth; ++k) {
    V x[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) x[n] = load_lanes<A, W>(b + k * ldb + n * W);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      A factor = a[m * row + k * step];
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) sum[m][n] += factor * x[n];
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) std::memcpy(c + m * ldc + n * W, &sum[m][n], sizeof(V));
}

/// c (rows x cols) = a (rows x depth) * b (depth x cols), or += with `add`. Element (m, k) of a stands at
/// m * row + k * step, so that a may be read transposed. rows and cols are multiples of kBlock.
template <class A, int W>
inline void multiply(A* c, int64_t ldc, const A* a, int64_t row, int64_t step, const A* b, int64_t ldb, int64_t rows,
                     int64_t cols, int64_t depth, bool add) {
  // kTile x kTile of b stay in the first-level cache while all rows of a pass by.
  for (int64_t k = 0; k < depth; k += kTile) {
    const int64_t part = std::min(kTile, depth - k);
    const A *from = a + k * step, *with = b + k * ldb;
    auto strip = [&]<int M, int N>(int64_t col) {
      for (int64_t m = 0; m < rows; m += M)
        multiply_block<A, W, M, N>(c + m * ldc + col, ldc, from + m * row, row, step, with + col, ldb, part,
                                   add || k > 0);
    };
    int64_t col = 0;
    if constexpr (W == 16) {
      for (; col + 4 * W <= cols; col += 4 * W) strip.template operator()<4, 4>(col);
      if (cols - col == 3 * W) strip.template operator()<4, 3>(col);
      if (cols - col == 2 * W) strip.template operator()<8, 2>(col);
      if (cols - col == W) strip.template operator()<8, 1>(col);
    } else {
      for (; col < cols; col += 2 * W) strip.template operator()<4, 2>(col);
    }
  }
}

template <class V, int... I>
inline V interleave_low(V a, V b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, ((I % 2) * static_cast<int>(sizeof...(I)) + I / 2)...);
}
template <class V, int... I>
inline V interleave_high(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int kCount = static_cast<int>(sizeof...(I));
  return __builtin_shufflevector(a, b, ((I % 2) * kCount + I / 2 + kCount / 2)...);
}

/// to[c][r] = from[r][c]; rows and cols are multiples of kBlock.
template <class A, int W>
inline void transpose(A* to, int64_t ldt, const A* from, int64_t ldf, int64_t rows, int64_t cols) {
  using V = Lanes<A, W>;
  constexpr auto kOrder = std::make_integer_sequence<int, W>{};
  for (int64_t r = 0; r < rows; r += W)
    for (int64_t c = 0; c < cols; c += W) {
      V x[W], y[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) x[i] = load_lanes<A, W>(from + (r + i) * ldf + c);
        // Each round rotates the bits of (row, column) by one: after log2(W) rounds they have changed places.
#pragma GCC unroll 4
      for (int round = 1; round < W; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < W / 2; ++i) {
          y[2 * i] = interleave_low(x[i], x[i + W / 2], kOrder);
          y[2 * i + 1] = interleave_high(x[i], x[i + W / 2], kOrder);
        }
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) x[i] = y[i];
      }
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) std::memcpy(to + (c + i) * ldt + r, &x[i], sizeof(V));
    }
}

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

/// Lanes of the mask that comparing Vec<A> gives.
template <class A>
using Mask = simd::Vec<std::conditional_t<std::is_same_v<A, double>, int64_t, int32_t>>;

inline simd::I32 load_ints(const int32_t* p) {
  simd::I32 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

using U32 = simd::Vec<uint32_t>;

/// The upper halves of the 64-bit products. A plain loop over arrays, which the compiler turns into 32 x 32 bit
/// products; vectors of 64-bit lanes would multiply in full.
inline U32 multiply_high(U32 a, uint32_t b) {
  uint32_t x[simd::kLanes];
  std::memcpy(x, &a, sizeof x);
  for (int i = 0; i < simd::kLanes; ++i) x[i] = static_cast<uint32_t>((uint64_t{x[i]} * b) >> 32);
  std::memcpy(&a, x, sizeof a);
  return a;
}

/// The parts of AttentionDropout that a kernel needs.
struct Dropout {
  bool on = false;
  uint32_t threshold = 0;
  double kept = 1;  ///< what a kept probability is multiplied by
  std::array<uint32_t, 2> key{};
  const int32_t* index = nullptr;
  uint32_t first_head = 0;

  /// Reads the key from the device's StepScalars: not on a dry stream.
  static Dropout of(const AttentionDropout& d) {
    if (d.p <= 0) return {};
    return {true,        drop_threshold(d.p),     1 / (1 - static_cast<double>(d.p)),
            d.key.key(), d.index.data<int32_t>(), static_cast<uint32_t>(d.first_head)};
  }

  /// Philox with sixteen counters {index, group, head, 0} at once.
  inline std::array<U32, 4> words(U32 index_of, U32 group, uint32_t head) const {
    std::array<U32, 4> c{index_of, group, simd::splat(head), U32{}};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      c = {multiply_high(c[2], 0xCD9E8D57u) ^ c[1] ^ k0, c[2] * 0xCD9E8D57u,
           multiply_high(c[0], 0xD2511F53u) ^ c[3] ^ k1, c[0] * 0xD2511F53u};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }

  /// Writes 0 or `kept` for one query and the kTile keys whose offsets begin at `offset` into `factor`, which has room
  /// for 2 * kTile, and returns where the first key's stands in it.
  template <class A>
  inline const A* factors(A* factor, int64_t row, int64_t offset, int64_t head) const {
    constexpr auto kOrder = std::make_integer_sequence<int, 16>{};
    const int64_t shift = offset % 4;
    U32 lane;
    for (int i = 0; i < kBlock; ++i) lane[i] = static_cast<uint32_t>(i);
    // Keys that do not begin at a group of four reach into a seventeenth group.
    for (int64_t first = 0; first < kTile + shift; first += kTile) {
      auto w =
          words(simd::splat(static_cast<uint32_t>(index[row])),
                lane + static_cast<uint32_t>((offset - shift + first) / 4), first_head + static_cast<uint32_t>(head));
      simd::Vec<A> f[4];
      for (size_t i = 0; i < 4; ++i)
        f[i] = __builtin_convertvector(w[i] < threshold, Mask<A>) != 0 ? simd::Vec<A>{}
                                                                       : simd::splat(static_cast<A>(kept));
      auto even_low = interleave_low(f[0], f[2], kOrder), even_high = interleave_high(f[0], f[2], kOrder);
      auto odd_low = interleave_low(f[1], f[3], kOrder), odd_high = interleave_high(f[1], f[3], kOrder);
      simd::store(factor + first, interleave_low(even_low, odd_low, kOrder));
      simd::store(factor + first + 16, interleave_high(even_low, odd_low, kOrder));
      simd::store(factor + first + 32, interleave_low(even_high, odd_high, kOrder));
      simd::store(factor + first + 48, interleave_high(even_high, odd_high, kOrder));
    }
    return factor + shift;
  }
};

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

/// Rows between the keys of one sequence and those of the next.
inline int64_t key_stride(const AttentionShape& a) { return a.k_stride ? a.k_stride : a.k_length; }

}  // namespace chiron::tiles
