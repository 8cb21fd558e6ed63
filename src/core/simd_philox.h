#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "core/simd.h"

namespace chiron::simd {

using U32 = Vec<uint32_t>;

/// Words 0..3 of sixteen Philox calls.
struct PhiloxWords {
  U32 word[4];
};

namespace detail {

/// The upper halves of the products of sixteen words with m.
inline U32 multiply_high(U32 a, uint32_t m) {
  using U64 [[gnu::vector_size(64)]] = uint64_t;
  constexpr uint64_t kLow = 0xffffffffu;
  U64 pairs;
  std::memcpy(&pairs, &a, sizeof pairs);
  U64 high = (((pairs & kLow) * m) >> 32) | (((pairs >> 32) * m) & ~kLow);
  std::memcpy(&a, &high, sizeof a);
  return a;
}

}  // namespace detail

/// chiron::philox for sixteen counters at once.
inline PhiloxWords philox(PhiloxWords counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u;
  auto& c = counter.word;
  for (int round = 0; round < 10; ++round) {
    U32 high0 = detail::multiply_high(c[0], kM0), low0 = c[0] * kM0;
    U32 high1 = detail::multiply_high(c[2], kM1), low1 = c[2] * kM1;
    c[0] = high1 ^ c[1] ^ key[0];
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ key[1];
    c[3] = low0;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Keep-or-drop for 64 neighbours that share sixteen counters four by four: keep[4 * lane + w] = 0xff where word w of
/// that lane is at least `threshold`, else 0.
inline void keep_bytes(uint8_t* keep, const PhiloxWords& words, uint32_t threshold) {
  U32 bytes{};
  for (uint32_t w = 0; w < 4; ++w) {
    // The sign of the borrow of word - threshold, which is set where the word is below.
    const U32 word = words.word[w];
    U32 below = (~word & threshold) | ((~word | threshold) & (word - threshold));
    U32 kept = (below >> 31) - 1u;
    bytes |= kept & (uint32_t{0xff} << (8 * w));  // in memory, byte w of a lane
  }
  std::memcpy(keep, &bytes, sizeof bytes);
}

/// v where the byte of keep is 0xff, 0 where it is 0. Reads sixteen bytes.
template <class A>
inline Vec<A> keep_or_zero(Vec<A> v, const uint8_t* keep) {
  Vec<int8_t> bytes;
  std::memcpy(&bytes, keep, sizeof bytes);
  return from_bits<A>(bits_of<A>(v) & __builtin_convertvector(bytes, Bits<A>));
}

}  // namespace chiron::simd
