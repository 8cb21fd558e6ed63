// A run takes the memory that its plan says, seen from outside.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>

#include "base/temp_dir.h"
#include "support/measured.h"
#include "train/plan.h"
#include "train/setup.h"
#include "train/sources.h"

namespace chiron::tests {
namespace {

struct Case {
  const char* name;
  const char* model;  ///< lines of YAML; all of these models take over 200 MB
  const char* training;
  const char* activations;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"Gpt2", "family: gpt2, num_layers: 4, d_model: 512, num_heads: 8, vocab_size: 256", "batch_size: 4, seq_len: 128",
     "keep_all"},
    {"Gpt2KeepsNothing", "family: gpt2, num_layers: 4, d_model: 512, num_heads: 8, vocab_size: 256",
     "batch_size: 4, seq_len: 128", "keep_none"},
    {"Gpt2Dropout", "family: gpt2, num_layers: 5, d_model: 512, num_heads: 8, vocab_size: 256, dropout: 0.1",
     "batch_size: 2, seq_len: 128, use_amp: true", "{every: 2}"},
    {"Gpt2Vocabulary", "family: gpt2, num_layers: 2, d_model: 256, num_heads: 4, vocab_size: 50257",
     "batch_size: 2, seq_len: 128, use_amp: true", "keep_none"},
    {"Gpt2VocabularyInSlices", "family: gpt2, num_layers: 2, d_model: 256, num_heads: 4, vocab_size: 50257",
     "batch_size: 4, seq_len: 128, loss_chunk: 64", "keep_all"},
    {"Llama", "family: llama, num_layers: 4, d_model: 512, num_heads: 8, num_kv_heads: 2, d_ff: 1408, vocab_size: 256",
     "batch_size: 4, seq_len: 128, gradient_accumulation: 2", "keep_all"},
    {"LlamaKeepsNothing",
     "family: llama, num_layers: 5, d_model: 512, num_heads: 8, num_kv_heads: 2, d_ff: 1408, vocab_size: 256",
     "batch_size: 4, seq_len: 128, gradient_accumulation: 3, use_amp: true", "keep_none"},
    {"LlamaVocabulary",
     "family: llama, num_layers: 2, d_model: 256, num_heads: 4, num_kv_heads: 2, d_ff: 704, vocab_size: 50257",
     "batch_size: 2, seq_len: 128", "keep_all"},
};

class LongPlanMemoryOf : public testing::TestWithParam<Case> {};

void expect_as_planned(const Measured& run, const Measured& idle, const Plan& plan, const std::string& what) {
  ASSERT_EQ(run.status, 0) << run.text;
  const auto planned = static_cast<double>(plan.total()), seen = static_cast<double>(run.peak_bytes - idle.peak_bytes);
  ASSERT_GT(idle.peak_bytes, 2e6);
  ASSERT_GT(planned, 200e6);
  EXPECT_NEAR(seen / planned, 1, 0.03) << what << ": planned " << planned / 1e6 << " MB, seen " << seen / 1e6 << " MB";
  if (const char* show = std::getenv("CHIRON_SHOW"); show)
    fmt::print("{:<32} planned {:8.2f} MB, seen {:8.2f} MB, {:+.2f} %\n", what, planned / 1e6, seen / 1e6,
               100 * (seen / planned - 1));
}

TEST_P(LongPlanMemoryOf, IsWhatARunTakes) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  const Case& c = GetParam();
  TempDir dir;
  const std::string config = dir / "c.yaml", output = dir / "output.txt";
  write_file(config, fmt::format("model: {{{}}}\n"
                                 "training: {{{}, max_steps: 2, eval_every: 1, eval_batches: 1}}\n"
                                 "data: {{synthetic: true}}\n"
                                 "checkpoint: {{every: 1}}\n"
                                 "activations: {}\n"
                                 "run: {{dir: {}}}\n",
                                 c.model, c.training, c.activations, dir / "run"));
  const Options options = load_options(config, {});
  const auto model = make_model(model_setup(options, data_vocabulary(options)));
  const Plan plan = make_plan(options, *model);
  const Measured idle = measure({"doctor"}, output);
  expect_as_planned(measure({"train", config}, output), idle, plan, std::string(c.name) + ", fresh");
  expect_as_planned(measure({"train", config, "--set", "training.max_steps=4"}, output), idle, plan,
                    std::string(c.name) + ", resumed");
}

TEST(LongPlanMemory, HoldsForARunThatStartsFromAFolder) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  TempDir dir;
  const std::string config = dir / "c.yaml", output = dir / "output.txt", folder = dir / "hf";
  const std::string rest =
      "training: {batch_size: 2, seq_len: 128, max_steps: 1, use_amp: true}\n"
      "data: {synthetic: true}\nactivations: keep_none\n";
  write_file(config, "model: {family: gpt2, num_layers: 6, d_model: 512, num_heads: 8, vocab_size: 256}\n" + rest);
  ASSERT_EQ(measure({"train", config, "--out", dir / "run"}, output).status, 0);
  ASSERT_EQ(measure({"export", dir / "run", "--to", folder}, output).status, 0);
  write_file(config, "model: {from: " + folder + "}\n" + rest);
  Log log;
  const Options options = with_model(load_options(config, {}), log);
  const auto model = make_model(model_setup(options, data_vocabulary(options)));
  expect_as_planned(measure({"train", config, "--out", dir / "again"}, output), measure({"doctor"}, output),
                    make_plan(options, *model), "from a folder");
}

INSTANTIATE_TEST_SUITE_P(All, LongPlanMemoryOf, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace chiron::tests
