#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/simd.h"
#include "core/stream.h"

/// Products and transposes of small matrices in local memory, written for the registers of each instruction set.
/// Everything is inline, since Stream::parallel_at compiles whole loops. Private to this folder.
namespace chiron::tiles {

inline constexpr int64_t kTile = 64;   ///< queries and keys of a tile
inline constexpr int64_t kBlock = 16;  ///< masked parts of a tile are skipped in blocks of kBlock x kBlock
inline constexpr int64_t kBlocks = kTile / kBlock;

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
#if defined(__x86_64__) && !defined(CHIRON_BASELINE_ONLY)
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

}  // namespace chiron::tiles
