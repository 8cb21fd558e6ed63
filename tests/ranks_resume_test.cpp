// A run goes on with another number of ranks, from the shards that others wrote.

#include <gmock/gmock.h>

#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "comm/thread_ranks.h"
#include "support/program.h"
#include "train/trainer.h"

namespace chiron::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kConfig = R"(
model: {family: llama, num_layers: 2, d_model: 16, num_heads: 2, vocab_size: 32}
training: {batch_size: 1, gradient_accumulation: 4, seq_len: 12, max_steps: 3, warmup_steps: 2, eval_every: 0,
           lr_schedule: constant}
data: {synthetic: true}
checkpoint: {every: 1, keep_last: 10}
run: {threads: 1, device: cpu}
logging: {level: WARNING}
)";

struct RanksResume : testing::Test {
  TempDir dir;
  RanksResume() { write_file(dir / "c.yaml", kConfig); }

  /// Four sequences a step, over n ranks.
  void train(int n, int64_t steps, Words sets = {}) {
    sets = sets + Words{"run.dir=" + dir / "run", fmt::format("training.max_steps={}", steps),
                        fmt::format("training.gradient_accumulation={}", 4 / n)};
    const Options options = load_options(dir / "c.yaml", sets);
    run_thread_ranks(n, [&](Communicator& c) {
      Log log(c.rank() == 0 ? LogLevel::warning : LogLevel::error);
      EXPECT_EQ(Trainer(options, false, log, c).run(), ExitCode::done);
    });
  }
  std::string checkpoints() { return dir / "run/checkpoints"; }
};

TEST_F(RanksResume, WithAnyOtherNumber) {
  int64_t step = 0;
  for (const int n : {2, 1, 4, 2}) {
    train(n, step += 2, {fmt::format("checkpoint.writers={}", n / 2)});
    const auto newest = newest_checkpoint(checkpoints());
    ASSERT_TRUE(newest);
    const Checkpoint checkpoint(newest->path);
    EXPECT_EQ(checkpoint.step(), step);
    EXPECT_EQ(checkpoint.state()["ranks"], n);
    EXPECT_EQ(checkpoint.state()["tokens"], step * 4 * 12);
  }
  const auto lines = metrics_of(dir / "run");
  ASSERT_EQ(lines.size(), 8u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  EXPECT_EQ(find_checkpoints(checkpoints()).whole.size(), 8u);
}

TEST_F(RanksResume, DamageEndsAllRanksForTheSameReason) {
  train(2, 2);
  const std::string folder = newest_checkpoint(checkpoints())->path;
  for (const std::string& name : list_directory(folder)) {
    if (name == "manifest.json" || name == "COMPLETE") continue;
    const std::string file = folder + "/" + name, good = read_file(file);
    std::string bad = good;
    bad[bad.size() / 2] ^= 4;
    write_file(file, bad);
    EXPECT_THAT(message_of([&] { train(2, 4); }), AllOf(HasSubstr(file + " is damaged"), HasSubstr("out of the way")));
    write_file(file, good);
  }
  train(2, 4);
}

TEST_F(RanksResume, AFullDiskEndsAllRanks) {
  train(2, 2);
  for (const char* async : {"checkpoint.async=true", "checkpoint.async=false"}) {
    set_file_faults({.fail_at = 40, .lasting = true});
    const std::string message = message_of([&] { train(2, 1000, {async}); });
    set_file_faults({});
    EXPECT_THAT(message, AllOf(HasSubstr(dir / "run"), HasSubstr("the disk is full")));
    EXPECT_THAT(find_checkpoints(checkpoints()).skipped, ElementsAre());
    for (const CheckpointInfo& c : find_checkpoints(checkpoints()).whole) Checkpoint whole(c.path);
  }
}

}  // namespace
}  // namespace chiron::tests
