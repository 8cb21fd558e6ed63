#include "data/joined_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace chiron {
namespace {

/// Tokens first, first + 1, ...; documents of three.
class Counting final : public TokenSource {
 public:
  Counting(int64_t first, int64_t n) : first_(first), n_(n) {}
  std::string name() const override { return fmt_name(); }
  int64_t num_tokens() const override { return n_; }
  int64_t vocab_size() const override { return 100; }
  int64_t text_bytes() const override { return 2 * n_; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    std::iota(out.begin(), out.end(), static_cast<int32_t>(first_ + begin));
  }
  int64_t next_document(int64_t token) const override { return std::min(n_, token / 3 * 3 + 3); }

 private:
  std::string fmt_name() const { return std::to_string(first_); }
  int64_t first_, n_;
};

TEST(JoinedSource, IsOneSequence) {
  JoinedSource joined(
      {std::make_shared<Counting>(0, 5), std::make_shared<Counting>(50, 0), std::make_shared<Counting>(5, 4)});
  EXPECT_EQ(joined.num_tokens(), 9);
  EXPECT_EQ(joined.text_bytes(), 18);
  EXPECT_EQ(joined.name(), "0, 50, 5");
  EXPECT_NE(joined.fingerprint(), JoinedSource({std::make_shared<Counting>(0, 5)}).fingerprint());
  for (int64_t begin = 0; begin <= 9; ++begin)
    for (int64_t end = begin; end <= 9; ++end) {
      std::vector<int32_t> got(static_cast<size_t>(end - begin)), want = got;
      joined.read(begin, got);
      std::iota(want.begin(), want.end(), static_cast<int32_t>(begin));
      EXPECT_EQ(got, want);
    }
  EXPECT_EQ(joined.next_document(0), 3);
  EXPECT_EQ(joined.next_document(4), 5);  // the first part's last document ends with it
  EXPECT_EQ(joined.next_document(5), 8);
  EXPECT_EQ(joined.next_document(8), 9);
}

}  // namespace
}  // namespace chiron
