#pragma once

#include <array>
#include <cstdint>

#include "ops/attention/attention.h"
#include "ops/attention/products.h"

/// Dropout on attention probabilities, sixteen draws at a time. Private to this folder.
namespace chiron::tiles {

/// Lanes of the mask that comparing Vec<A> gives.
template <class A>
using Mask = simd::Vec<std::conditional_t<std::is_same_v<A, double>, int64_t, int32_t>>;

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

}  // namespace chiron::tiles
