// A run that was stopped, killed or ran out of disk, and was started again, ends with the bits of one that was not.

#include <gmock/gmock.h>

#include "base/hash.h"
#include "base/temp_dir.h"
#include "io/checkpoint_layout.h"
#include "support/program.h"

namespace chiron::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Saved in the foreground, so that the n-th file operation is the same one each time.
constexpr const char* kConfig = R"(
model: {family: gpt2, num_layers: 1, d_model: 16, num_heads: 2, vocab_size: 32}
training: {batch_size: 2, seq_len: 12, max_steps: 6, learning_rate: 1e-2, warmup_steps: 3, eval_every: 0}
data: {synthetic: true}
checkpoint: {every: 0, async: false}
run: {threads: 1}
logging: {level: WARNING}
)";

std::string set(const std::string& key, int64_t value) { return fmt::format("{}={}", key, value); }

/// A folder with a configuration and runs.
struct Resume : testing::Test {
  TempDir dir;

  explicit Resume(const std::string& config = kConfig) { write_file(dir / "c.yaml", config); }

  Words train(const std::string& run, const Words& sets = {}, const Words& more = {}) const {
    Words words = {"train", dir / "c.yaml", "--out", dir / run};
    for (const std::string& s : sets) words = words + Words{"--set", s};
    return words + more;
  }
  Outcome go(const std::string& run, const Words& sets = {}, const Words& more = {}) {
    return chiron(dir.path(), train(run, sets, more));
  }
  void expect_done(const std::string& run, const Words& sets = {}, const Words& more = {}) {
    Outcome o = go(run, sets, more);
    ASSERT_EQ(o.code, 0) << o.text;
  }
  /// A run that is killed at each of these file operations in turn, and each time resumed from its newest checkpoint,
  /// against one that is not.
  void expect_same_in_parts(const std::vector<int64_t>& kills, const Words& sets, const std::string& what) {
    const Words all = sets + Words{"training.max_steps=40"}, parts = all + Words{"checkpoint.every=3"};
    expect_done("whole", all, {"--fresh"});
    Words fresh = {"--fresh"};
    int64_t before = 0;
    for (int64_t n : kills) {
      Outcome o = go("parts", parts, fresh + Words{"--crash-at", std::to_string(n)});
      ASSERT_EQ(o.code, -SIGKILL) << what << ": " << o.text;
      auto saved = newest_checkpoint(dir / "parts/checkpoints");
      ASSERT_TRUE(saved && saved->step > before) << what << ": it came further";
      before = saved->step;
      fresh.clear();
    }
    ASSERT_LT(before, 40);
    expect_done("parts", parts);
    expect_same(trace_of(dir / "parts"), trace_of(dir / "whole"), what);
  }
  std::string newest(const std::string& run) { return newest_checkpoint(dir / run + "/checkpoints")->path; }
};

TEST_F(Resume, GivesTheSameBits) {
  expect_same_in_parts({200}, {}, "float32");
  expect_same_in_parts({150, 120}, {"training.use_amp=true"}, "bf16, twice");
  expect_same_in_parts({170}, {"training.loss_scale=dynamic", "training.loss_scale_interval=5"},
                       "a loss scale that grows");
  expect_same_in_parts({170}, {"training.gradient_accumulation=3", "model.dropout=0.2"}, "accumulation, dropout");
  expect_same_in_parts({170},
                       {"model.family=llama", "model.num_kv_heads=1", "training.eval_every=10",
                        "training.eval_batches=2", "run.threads=2", "training.lr_schedule=wsd"},
                       "llama, evaluation, two threads");
}

/// Rewrites a checkpoint's trainer_state.json, and what vouches for it.
template <class F>
void change_state(const std::string& checkpoint, F&& change) {
  using namespace checkpoint_layout;
  auto state = nlohmann::json::parse(read_file(checkpoint + "/trainer_state.json"));
  change(state);
  const std::string text = state.dump();
  Manifest manifest = parse_manifest(read_file(checkpoint + "/manifest.json"), "");
  manifest.step = state["step"];
  for (FileRecord& f : manifest.files)
    if (f.name == "trainer_state.json") f = {f.name, static_cast<int64_t>(text.size()), hash128(text)};
  write_file(checkpoint + "/trainer_state.json", text);
  write_file(checkpoint + "/manifest.json", to_text(manifest));
  write_file(checkpoint + "/COMPLETE", marker_for(to_text(manifest)));
}

TEST_F(Resume, ACheckpointOfBeforeThereWasALossScaleGoesOn) {
  expect_done("run", {"training.max_steps=3", "training.lr_schedule=constant"});
  expect_done("whole", {"training.lr_schedule=constant"}, {"--fresh"});
  change_state(newest("run"), [](nlohmann::json& state) {
    for (const char* key : {"loss_scale", "loss_scale_good_steps", "overflowed_steps"})
      ASSERT_EQ(state.erase(key), 1u) << key;
  });
  expect_done("run", {"training.lr_schedule=constant"});
  expect_same(trace_of(dir / "run"), trace_of(dir / "whole"), "the same bits");
}

/// A prepared set whose epoch is 10 samples, or 5 steps.
struct ResumeData : Resume {
  ResumeData() {
    std::string text;
    for (int i = 0; i < 122; ++i) text += static_cast<char>('a' + i * i % 26);
    write_file(dir / "a.txt", text);
    Outcome o = chiron(dir.path(), {"prepare", dir / "a.txt", "--out", dir / "data"});
    EXPECT_EQ(o.code, 0) << o.text;
  }
  Words sets{"data.synthetic=false", "data.train=[" + dir / "data" + "]", "model.vocab_size=0"};
};

TEST_F(ResumeData, AcrossTheEndOfAnEpoch) { expect_same_in_parts({90, 110, 130}, sets, "kills in three epochs"); }

TEST_F(ResumeData, DamagedTokensAreFoundAtTheStart) {
  for (const std::string& name : list_directory(dir / "data")) {
    const std::string file = dir / "data/" + name, good = read_file(file);
    if (!good.starts_with("CHIRONTK")) continue;
    std::string bad = good;
    bad[300] ^= 1;  // a token that is in the vocabulary too
    write_file(file, bad);
    Outcome o = go("run", sets);
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_THAT(o.text, AllOf(HasSubstr(file + ": damaged"), HasSubstr("checksum")));
    EXPECT_FALSE(directory_exists(dir / "run"));
    write_file(file, good);
  }
  expect_done("run", sets);
}

TEST_F(ResumeData, FarIntoARunInSeconds) {
  expect_done("run", sets);
  // The state of a run that has come far.
  const std::string from = newest("run"), to = dir / "run/checkpoints/step-01000000";
  rename_path(from, to);
  remove_file(dir / "run/metrics.jsonl");
  change_state(to, [](nlohmann::json& state) { state["step"] = state["applied_steps"] = 1'000'000; });

  const auto start = std::chrono::steady_clock::now();
  expect_done("run", sets + Words{"training.max_steps=1000002"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  auto lines = metrics_of(dir / "run");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["step"], 1'000'002);
}

TEST_F(Resume, ASignalEndsTheStepAndSaves) {
  for (int signal : {SIGTERM, SIGINT}) {
    const std::string run = fmt::format("stopped-{}", signal);
    const Words constant = {"training.lr_schedule=constant", "training.warmup_steps=0"};
    Process process(train(run, constant + Words{"training.max_steps=100000000"}), dir / "out.txt");
    ASSERT_TRUE(
        eventually([&] { return file_exists(dir / run + "/metrics.jsonl") && metrics_of(dir / run).size() > 2; }));
    process.signal(signal);
    Outcome o = process.wait();
    EXPECT_EQ(o.code, 75) << o.text;
    EXPECT_THAT(o.text, HasSubstr("\nfinishing the step, then saving; Ctrl-C again aborts\n"));
    const auto steps = static_cast<int64_t>(metrics_of(dir / run).size());
    EXPECT_EQ(newest_checkpoint(dir / run + "/checkpoints")->step, steps) << "saved at the end of the step";
    const Words end = constant + Words{set("training.max_steps", steps + 3)};
    expect_done(run, end);
    expect_done("whole", end, {"--fresh"});
    expect_same(trace_of(dir / run), trace_of(dir / "whole"), fmt::format("signal {}", signal));
  }
}

TEST_F(Resume, ASignalDuringAnEvaluationSavesToo) {
  Process process(train("run", {"training.max_steps=100000000", "training.eval_every=1", "training.eval_batches=2000"}),
                  dir / "out.txt");
  ASSERT_TRUE(eventually([&] { return file_exists(dir / "run/metrics.jsonl") && metrics_of(dir / "run").size() > 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.signal(SIGTERM);
  Outcome o = process.wait();
  EXPECT_EQ(o.code, 75) << o.text;
  auto newest = newest_checkpoint(dir / "run/checkpoints");
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, static_cast<int64_t>(metrics_of(dir / "run").size()));
}

TEST_F(Resume, ASecondSignalAborts) {
  Process process(train("run", {"training.max_steps=100000000", "training.batch_size=5000"}), dir / "out.txt");
  ASSERT_TRUE(eventually([&] { return file_exists(dir / "run/metrics.jsonl") && metrics_of(dir / "run").size() > 0; }));
  process.signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return read_file(dir / "out.txt").find("finishing") != std::string::npos; }));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().code, -SIGINT);
  EXPECT_FALSE(newest_checkpoint(dir / "run/checkpoints"));
}

TEST_F(Resume, TheFirstStepHasTheRateOfItsNumber) {
  expect_same_in_parts({200}, {"training.lr_schedule=linear", "training.final_lr_fraction=0"}, "linear");
  auto lines = metrics_of(dir / "parts");
  ASSERT_EQ(lines.size(), 40u);
  for (size_t n = 3; n < 40; ++n)
    EXPECT_NEAR(lines[n]["lr"].get<double>(), 1e-2 * static_cast<double>(40 - n) / 37, 1e-8) << n;
}

TEST_F(Resume, InTheBackgroundTheSameCheckpoints) {
  const Words sets = {"checkpoint.every=1", "checkpoint.keep_last=9", "model.d_model=64", "model.vocab_size=2000"};
  expect_done("now", sets);
  expect_done("later", sets + Words{"checkpoint.async=true"});
  const std::string now = dir / "now/checkpoints", later = dir / "later/checkpoints";
  ASSERT_EQ(find_checkpoints(now).whole.size(), 6u);
  ASSERT_EQ(list_directory(now), list_directory(later));
  for (const CheckpointInfo& c : find_checkpoints(now).whole)
    for (const std::string& name : list_directory(c.path)) {
      const std::string file = c.path.substr(now.size()) + "/" + name;
      EXPECT_TRUE(read_file(now + file) == read_file(later + file)) << file << ": training went on meanwhile";
    }
}

TEST_F(Resume, ASignalWaitsForWhatIsBeingWritten) {
  const Words sets = {"training.lr_schedule=constant", "checkpoint.every=1", "checkpoint.async=true",
                      "checkpoint.on_exit=false"};
  Process process(train("run", sets + Words{"training.max_steps=100000000"}), dir / "out.txt");
  ASSERT_TRUE(eventually([&] { return file_exists(dir / "run/metrics.jsonl") && metrics_of(dir / "run").size() > 2; }));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().code, 75);
  const auto steps = static_cast<int64_t>(metrics_of(dir / "run").size());
  const std::string newest = this->newest("run");
  EXPECT_THAT(list_directory(dir / "run/checkpoints"), testing::Not(testing::Contains(HasSubstr("saving"))));
  EXPECT_EQ(newest_checkpoint(dir / "run/checkpoints")->step, steps) << newest;
}

TEST_F(Resume, AFailingWriterEndsTheRunAndNamesTheFile) {
  const Words sets = {"checkpoint.every=2", "checkpoint.async=true", "training.max_steps=1000"};
  for (const int64_t n : {60, 63, 66, 69}) {
    Outcome o = go("run", sets, {"--fresh", "--disk-full-at", std::to_string(n)});
    EXPECT_EQ(o.code, 4) << n << ": " << o.text;
    EXPECT_THAT(o.text, AllOf(HasSubstr(dir / "run"), HasSubstr("the disk is full")));
    EXPECT_LT(metrics_of(dir / "run").size(), 100u) << "told at the next step, not at the end";
    for (const CheckpointInfo& c : find_checkpoints(dir / "run/checkpoints").whole) Checkpoint whole(c.path);
  }
}

TEST_F(Resume, KeepsTheLast) {
  auto left = [&] {
    std::vector<int64_t> steps;
    CheckpointScan scan = find_checkpoints(dir / "run/checkpoints");
    EXPECT_THAT(scan.skipped, ElementsAre());
    for (const CheckpointInfo& c : scan.whole) steps.push_back(c.step);
    return steps;
  };
  const Words sets = {"training.lr_schedule=constant", "checkpoint.every=2", "checkpoint.keep_last=2"};
  expect_done("run", sets + Words{"training.max_steps=2"});
  EXPECT_THAT(left(), ElementsAre(2)) << "fewer than keep_last";
  expect_done("run", sets + Words{"training.max_steps=7"});
  EXPECT_THAT(left(), ElementsAre(6, 7));
  expect_done("run", sets + Words{"training.max_steps=10", "checkpoint.keep_last=1"});
  EXPECT_THAT(left(), ElementsAre(10));
  expect_done("run", sets + Words{"training.max_steps=10"});
  EXPECT_THAT(left(), ElementsAre(10)) << "nothing to do";
}

TEST_F(Resume, DamageIsFoundAndTheChoiceIsTheUsers) {
  const Words sets = {"checkpoint.every=3"};
  expect_done("whole", sets);
  expect_done("run", sets);
  const std::string folder = newest("run");
  for (const std::string& name : list_directory(folder)) {
    const std::string file = folder + "/" + name, good = read_file(file);
    std::string bad = good;
    bad[bad.size() / 2] ^= 4;
    write_file(file, bad);
    Outcome o = go("run", sets + Words{"training.max_steps=8"});
    if (name == "manifest.json" || name == "COMPLETE") {
      // Not known to be whole, so passed over, and said so.
      EXPECT_EQ(o.code, 0) << o.text;
      EXPECT_THAT(o.text, AllOf(HasSubstr("passed over " + folder), HasSubstr(name)));
      remove_tree(dir / "run");
      expect_done("run", sets);
    } else {
      EXPECT_EQ(o.code, 3) << name << ": " << o.text;
      EXPECT_THAT(o.text, AllOf(HasSubstr(file + " is damaged"), HasSubstr("move " + folder + " out of the way")));
      write_file(file, good);
    }
  }
  // What the message says works.
  std::string shard = folder + "/shard-00001-model-00001-of-00001.safetensors", bytes = read_file(shard);
  bytes[bytes.size() - 1] ^= 1;
  write_file(shard, bytes);
  EXPECT_EQ(go("run", sets).code, 3);
  rename_path(folder, dir / "aside");
  expect_done("run", sets);
  expect_same(trace_of(dir / "run"), trace_of(dir / "whole"), "from the one before");
}

TEST_F(Resume, ALostRunIsNotStartedAnewInSilence) {
  expect_done("run");
  write_file(newest("run") + "/COMPLETE", "");
  Outcome o = go("run");
  EXPECT_EQ(o.code, 3) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("no whole checkpoint is left"), HasSubstr("COMPLETE"), HasSubstr("--fresh")));
  EXPECT_EQ(metrics_of(dir / "run").size(), 6u) << "nothing was dropped";
}

/// A run with saves on the way, short enough to be done hundreds of times.
struct LongResume : Resume {
  const Words sets = {"checkpoint.every=2", "checkpoint.keep_last=2"};
  LongResume() { expect_done("whole", sets); }

  /// File operations of the run.
  int64_t operations() {
    for (int64_t n = 1;; n += 64) {
      remove_tree(dir / "run");
      if (go("run", sets, {"--crash-at", std::to_string(n)}).code != 0) continue;
      for (int64_t m = n - 1;; --m) {
        remove_tree(dir / "run");
        if (go("run", sets, {"--crash-at", std::to_string(m)}).code != 0) return m;
      }
    }
  }
};

TEST_F(LongResume, AfterAKillAtAnyFileOperation) {
  const Trace want = trace_of(dir / "whole");
  int64_t kills = 0;
  for (int64_t n = 1;; ++n) {
    remove_tree(dir / "run");
    Outcome killed = go("run", sets, {"--crash-at", std::to_string(n)});
    if (killed.code == 0) break;
    ASSERT_EQ(killed.code, -SIGKILL) << killed.text;
    ++kills;
    expect_done("run", sets);
    expect_same(trace_of(dir / "run"), want, fmt::format("killed at operation {}", n));
    for (const char* folder : {"", "/checkpoints"})
      EXPECT_EQ(list_directory(dir / "run" + folder), list_directory(dir / "whole" + folder))
          << n << ": nothing is left";
    if (HasFailure()) return;
  }
  EXPECT_GT(kills, 3 * 25) << "three saves";
}

TEST_F(LongResume, AfterASecondKillWhileResuming) {
  const Trace want = trace_of(dir / "whole");
  const int64_t all = operations();
  for (int64_t n = all / 2; n < all; n += 7)
    for (int64_t m = 1; m < 60; m += 4) {
      remove_tree(dir / "run");
      go("run", sets, {"--crash-at", std::to_string(n)});
      go("run", sets, {"--crash-at", std::to_string(m)});
      expect_done("run", sets);
      expect_same(trace_of(dir / "run"), want, fmt::format("killed at operation {}, then at {}", n, m));
      if (HasFailure()) return;
    }
}

TEST_F(LongResume, AfterAFullDiskAtAnyFileOperation) {
  const Trace want = trace_of(dir / "whole");
  const int64_t all = operations();
  int64_t failures = 0;
  for (int64_t n = 1; n <= all; ++n) {
    remove_tree(dir / "run");
    Outcome o = go("run", sets, {"--disk-full-at", std::to_string(n)});
    if (o.code != 0) {
      ++failures;
      EXPECT_EQ(o.code, 4) << n << ": " << o.text;
      EXPECT_THAT(o.text, AllOf(HasSubstr(dir / "run"), HasSubstr("the disk is full"))) << n;
      // Whatever is there is whole.
      for (const CheckpointInfo& c : find_checkpoints(dir / "run/checkpoints").whole) Checkpoint whole(c.path);
      EXPECT_THAT(find_checkpoints(dir / "run/checkpoints").skipped, ElementsAre()) << n;
    }
    expect_done("run", sets);
    expect_same(trace_of(dir / "run"), want, fmt::format("full at operation {}", n));
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, all / 2);
}

TEST_F(LongResume, AfterAKillOrAFullDiskWhileOneIsWritten) {
  const Trace want = trace_of(dir / "whole");
  const Words async = sets + Words{"checkpoint.async=true"};
  for (const char* fault : {"--crash-at", "--disk-full-at"}) {
    int64_t failures = 0;
    for (int64_t n = 1;; n += 3) {
      remove_tree(dir / "run");
      Outcome o = go("run", async, {fault, std::to_string(n)});
      if (o.code == 0 && failures > 25) break;
      failures += o.code != 0;
      EXPECT_THAT(o.code, testing::AnyOf(0, 4, -SIGKILL)) << n << ": " << o.text;
      for (const CheckpointInfo& c : find_checkpoints(dir / "run/checkpoints").whole) Checkpoint whole(c.path);
      expect_done("run", async);
      expect_same(trace_of(dir / "run"), want, fmt::format("{} {}", fault, n));
      for (const char* folder : {"", "/checkpoints"})
        EXPECT_EQ(list_directory(dir / "run" + folder), list_directory(dir / "whole" + folder))
            << n << ": nothing is left";
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace chiron::tests
