#include "base/spelling.h"

#include <gtest/gtest.h>

#include <vector>

namespace chiron {
namespace {

TEST(Spelling, CountsEdits) {
  EXPECT_EQ(half_edits("abc", "abc"), 0);
  EXPECT_EQ(half_edits("abc", "abd"), 2);
  EXPECT_EQ(half_edits("abc", "ab"), 2);
  EXPECT_EQ(half_edits("abc", "acb"), 2) << "neighbours swapped";
  EXPECT_EQ(half_edits("abc", "Abc"), 1);
  EXPECT_EQ(half_edits("batch-size", "batch_size"), 1);
  EXPECT_EQ(half_edits("", "abc"), 6);
}

TEST(Spelling, FindsTheNearestOrNothing) {
  std::vector<std::string> words{"batch_size", "seq_len", "seed", "beta1", "beta2"};
  EXPECT_EQ(nearest("bacth_size", words), "batch_size");
  EXPECT_EQ(nearest("seqlen", words), "seq_len");
  EXPECT_EQ(nearest("sed", words), "seed");
  EXPECT_EQ(nearest("zebra_crossing", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(did_you_mean("seeed", words), "; did you mean seed?");
  EXPECT_EQ(did_you_mean("qqqq", words), "");
}

}  // namespace
}  // namespace chiron
