#include "data/permutation.h"

#include "base/error.h"
#include "base/philox.h"

namespace chiron {

Permutation::Permutation(int64_t n, int64_t seed, int64_t epoch)
    : n_(static_cast<uint64_t>(n)), seed_(static_cast<uint64_t>(seed)), epoch_(static_cast<uint64_t>(epoch)) {
  CHECK(n >= 1 && n <= int64_t{1} << 60, "a permutation of {}", n);
  while (uint64_t{1} << 2 * half_bits_ < n_) ++half_bits_;
}

uint64_t Permutation::encrypt(uint64_t x) const {
  constexpr uint32_t kRounds = 6;
  auto mask = static_cast<uint32_t>((uint64_t{1} << half_bits_) - 1);
  auto left = static_cast<uint32_t>(x >> half_bits_), right = static_cast<uint32_t>(x) & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    auto words = philox({right, round, static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32)},
                        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    uint32_t next = left ^ (words[0] & mask);
    left = right;
    right = next;
  }
  return uint64_t{left} << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t i) const {
  auto x = static_cast<uint64_t>(i);
  do x = encrypt(x);
  while (x >= n_);
  return static_cast<int64_t>(x);
}

}  // namespace chiron
