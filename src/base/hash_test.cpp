#include "base/hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace chiron {
namespace {

// The empty input's value stands in the specification's test vectors.
TEST(Hash, KnownValues) {
  EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hasher().digest(), hash128(""));
}

TEST(Hash, PiecesGiveTheSameValueAsTheWhole) {
  std::vector<unsigned char> bytes(5000);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(7));
  Hash128 whole = hash128(bytes.data(), bytes.size());
  for (size_t piece : {size_t{1}, size_t{7}, size_t{255}, size_t{1024}, size_t{4999}}) {
    Hasher h;
    for (size_t at = 0; at < bytes.size(); at += piece) h.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    EXPECT_EQ(h.digest(), whole) << piece;
    EXPECT_EQ(h.digest(), whole) << "asking must not change the state";
  }
}

TEST(Hash, EveryBitCounts) {
  std::vector<unsigned char> bytes(300, 0);
  Hash128 whole = hash128(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    EXPECT_FALSE(hash128(bytes.data(), bytes.size()) == whole) << bit;
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace chiron
