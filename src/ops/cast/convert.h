#pragma once

#include "core/simd.h"
#include "core/stream.h"

/// The loops of `cast`, for kernels that convert rows on their way.
namespace chiron {

/// Rounds to float so that a second rounding to a 16-bit kind gives what one rounding would: to odd where inexact
/// (Boldo & Melquiond, "Emulation of FMA and Correctly Rounded Sums", 2008, section III).
inline float round_to_odd(double x) {
  float nearest = static_cast<float>(x);
  double back = static_cast<double>(nearest);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (back == x || x != x || (bits & 1u)) return nearest;
  return std::bit_cast<float>(std::abs(x) > std::abs(back) ? bits + 1 : bits - 1);
}

/// to[i] = from[i] for i < n, rounded once to nearest even.
template <class To, class From>
inline void convert_row(To* to, const From* from, int64_t n) {
  constexpr bool kTwice = std::is_same_v<From, double> && sizeof(To) == 2;
  int64_t i = 0;
  if constexpr (!kTwice) {
    for (; i + simd::kLanes <= n; i += simd::kLanes)
      simd::store(to + i, __builtin_convertvector(simd::load(from + i), simd::Vec<Acc<To>>));
  }
  for (; i < n; ++i) {
    if constexpr (kTwice)
      to[i] = To(round_to_odd(from[i]));
    else
      to[i] = static_cast<To>(static_cast<Acc<To>>(from[i]));
  }
}

/// to = from, row by row on all threads. Same sizes, any two float kinds. No op of its own: tells no trace.
void convert(Stream& s, Rows to, Rows from);

}  // namespace chiron
