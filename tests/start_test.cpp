// From the command to the first step.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temp_dir.h"
#include "support/measured.h"

namespace chiron::tests {
namespace {

TEST(LongStart, TenMillionParametersStartWithinASecond) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  TempDir dir;
  const std::string config = std::string(CHIRON_SOURCE_DIR) + "/configs/gpt2-10m.yaml", run = dir / "run";
  const Measured m = measure(
      {"train", config, "--set", "run.dir=" + run, "--set", "training.max_steps=2", "--set", "training.eval_every=0"},
      dir / "output", run + "/metrics.jsonl");
  ASSERT_EQ(m.status, 0) << m.text;
  const std::string metrics = read_file(run + "/metrics.jsonl");
  const auto first = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  const double start = m.seconds_to_file - first["step_seconds"].get<double>();
  EXPECT_GT(start, 0);
  EXPECT_LT(start, 1);
}

}  // namespace
}  // namespace chiron::tests
