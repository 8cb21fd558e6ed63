// The reference models made by tests/golden/make_golden.py with PyTorch and transformers.

#include <gtest/gtest.h>

#include "train/check.h"

namespace chiron {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, AgreesWithTheReference) {
  const std::string folder = std::string(CHIRON_SOURCE_DIR "/tests/golden/") + GetParam();
  ThreadPool pool(2);
  Stream s({}, pool);
  Log log;
  size_t compared = 0;
  for (const Comparison& r : check_model(s, folder, folder + "/expected.safetensors", 0, log)) {
    EXPECT_TRUE(r.passed()) << r.name << ": " << r.error << " > " << r.allowed;
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

INSTANTIATE_TEST_SUITE_P(Folders, Golden, testing::Values("gpt2", "llama", "llama3_rope_tied"));

}  // namespace
}  // namespace chiron
