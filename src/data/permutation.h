#pragma once

#include <cstdint>

namespace chiron {

/// A pseudo-random permutation of 0 .. n-1 as a pure function: no table, constant time and memory. A balanced Feistel
/// network over the next power of four (Luby and Rackoff, 1988) whose rounds are Philox; results that are not below n
/// are sent through again (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002, section 4).
class Permutation {
 public:
  /// n >= 1. `seed` and `epoch` choose the permutation.
  Permutation(int64_t n, int64_t seed, int64_t epoch);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t encrypt(uint64_t x) const;

  uint64_t n_, seed_, epoch_;
  int half_bits_ = 1;
};

}  // namespace chiron
