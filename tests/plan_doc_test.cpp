// docs/plan.md shows what the program prints, and plans are quick and small.

#include <gmock/gmock.h>

#include <sstream>

#include "base/temp_dir.h"
#include "support/measured.h"
#include "support/program.h"

namespace chiron::tests {
namespace {

/// The stretches between lines of ```.
std::vector<std::string> blocks_of(const std::string& markdown) {
  std::vector<std::string> blocks;
  std::istringstream in(markdown);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

/// Without what hangs on the machine.
std::string portable(const std::string& table) {
  std::istringstream in(table);
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("  workspace of products") && !line.starts_with("  total")) out += line + "\n";
  return out;
}

TEST(PlanDocument, ShowsWhatTheProgramPrints) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  TempDir dir;
  const std::string root = CHIRON_SOURCE_DIR, config = root + "/configs/transformer_training.yaml";
  const auto blocks = blocks_of(read_file(root + "/docs/plan.md"));
  ASSERT_GE(blocks.size(), 3u);
  const Measured plan = measure({"plan", config}, dir / "output"),
                 ops = measure({"plan", config, "--ops"}, dir / "ops");
  ASSERT_EQ(plan.status, 0) << plan.text;
  EXPECT_EQ(portable(blocks[0]), portable(plan.text));
  EXPECT_THAT(portable(ops.text), testing::StartsWith(portable(plan.text) + "\nthe step\n" + blocks[1]));
  const std::string below_heading = blocks[2].substr(blocks[2].find('\n') + 1);
  EXPECT_EQ(blocks[2].substr(0, blocks[2].find('\n')), blocks[1].substr(0, blocks[1].find('\n')));
  EXPECT_THAT(ops.text, testing::HasSubstr("\n" + below_heading));
}

TEST(PlanDocument, LargeModelsTakeNoTimeAndNoMemory) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  TempDir dir;
  write_file(dir / "c.yaml",
             "model: {family: llama, num_layers: 32, d_model: 4096, num_heads: 32, num_kv_heads: 8, d_ff: 14336,\n"
             "  vocab_size: 128256, max_seq_len: 8192, tie_embeddings: false}\n"
             "training: {batch_size: 8, seq_len: 8192, gradient_accumulation: 16}\n"
             "data: {synthetic: true}\n");
  const Measured m = measure({"plan", dir / "c.yaml", "--ops"}, dir / "output");
  ASSERT_EQ(m.status, 0) << m.text;
  EXPECT_THAT(m.text, testing::HasSubstr("8,030,261,248"));
  EXPECT_GT(m.peak_bytes, 1e6);
  EXPECT_LT(m.peak_bytes, 50e6);
  EXPECT_LT(m.seconds, 1);
}

TEST(PlanDocument, AbsurdSizesHaveAPlanOrAnError) {
  TempDir dir;
  const Words plan = {"plan", CHIRON_SOURCE_DIR "/configs/tiny.yaml"};
  Outcome o = chiron(dir.path(), plan + Words{"--set", "model.d_model=65536", "--set", "model.num_layers=1000", "--set",
                                              "model.num_heads=512", "--set", "model.vocab_size=1000000"});
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(o.text, testing::HasSubstr("1000 layers, width 65536"));
  o = chiron(dir.path(), plan + Words{"--set", "model.d_model=1048576", "--set", "model.num_layers=10000", "--set",
                                      "model.num_heads=8192", "--set", "model.d_ff=8388608"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, testing::HasSubstr("lower the sizes of the model"));
}

}  // namespace
}  // namespace chiron::tests
