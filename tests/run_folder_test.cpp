// Where a run lives: its lock, --fresh, --out, and what may change when it is resumed.

#include <gmock/gmock.h>

#include <filesystem>

#include "base/temp_dir.h"
#include "support/program.h"
#include "support/sanitized.h"

namespace chiron::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct RunFolders : testing::Test {
  TempDir dir;
  std::string config = dir / "small.yaml", run = dir / "run";

  RunFolders() {
    write_file(config, R"(
model: {family: gpt2, num_layers: 1, d_model: 16, num_heads: 2, vocab_size: 32}
training: {batch_size: 2, seq_len: 12, max_steps: 4, learning_rate: 1e-2, warmup_steps: 2, eval_every: 0}
data: {synthetic: true}
run: {threads: 1}
)");
  }
  /// A command line of the shell.
  Outcome shell(const std::string& line) {
    const std::string text = dir / "shell.txt";
    int status = std::system(("{ ( " + line + " ) ; } > '" + text + "' 2>&1").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(text)};
  }
  Outcome train(const Words& sets = {}, const Words& more = {}) {
    Words words = {"train", config, "--out", run};
    for (const std::string& s : sets) words = words + Words{"--set", s};
    return chiron(dir.path(), words + more);
  }
};

TEST_F(RunFolders, OneProcessAtATime) {
  Process first({"train", config, "--out", run, "--set", "training.max_steps=100000000"}, dir / "first.txt");
  ASSERT_TRUE(eventually([&] { return file_exists(run + "/metrics.jsonl"); }));
  for (const Words& more : {Words{}, Words{"--fresh"}}) {
    Outcome second = train({"training.max_steps=100000000"}, more);
    EXPECT_EQ(second.code, 4) << second.text;
    EXPECT_THAT(second.text,
                AllOf(HasSubstr(run + "/lock is locked by process "), HasSubstr("wait for it or stop it")));
  }
  EXPECT_FALSE(directory_exists(run + ".1"));
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().code, -SIGKILL);
  EXPECT_EQ(train().code, 0) << "a killed process leaves no lock";
}

TEST_F(RunFolders, FreshMovesAsideAndDeletesNothing) {
  EXPECT_EQ(train({}, {"--fresh"}).code, 0) << "nothing to move";
  EXPECT_FALSE(directory_exists(run + ".1"));
  const Trace first = trace_of(run);
  Outcome second = train({"training.seed=2"}, {"--fresh"});
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_THAT(second.text, HasSubstr("the run that was in " + run + " is in " + run + ".1 now"));
  const Trace other = trace_of(run);
  EXPECT_NE(other.steps, first.steps);
  ASSERT_EQ(train({"training.seed=3"}, {"--fresh"}).code, 0);
  expect_same(trace_of(run + ".1"), first, "first");
  expect_same(trace_of(run + ".2"), other, "second");
  EXPECT_EQ(metrics_of(run).size(), 4u);
  // A folder without a configuration is a run too if it has checkpoints.
  remove_file(run + "/config.yaml");
  ASSERT_EQ(train({}, {"--fresh"}).code, 0);
  EXPECT_TRUE(directory_exists(run + ".3/checkpoints"));
}

TEST_F(RunFolders, WhatMayNotChangeIsRefusedWithTheDifference) {
  ASSERT_EQ(train().code, 0);
  const Trace before = trace_of(run);
  const std::string written = read_file(run + "/config.yaml");
  for (const auto& [option, was, is] : {std::tuple{"training.learning_rate", "0.01", "0.02"},
                                        {"training.batch_size", "2", "3"},
                                        {"training.seed", "1", "9"},
                                        {"model.num_layers", "1", "2"},
                                        {"training.use_amp", "false", "true"},
                                        {"data.shuffle", "true", "false"},
                                        {"model.vocab_size", "32", "33"}}) {
    Outcome o = train({fmt::format("{}={}", option, is), "training.max_steps=8"});
    EXPECT_EQ(o.code, 2) << o.text;
    EXPECT_THAT(o.text,
                AllOf(HasSubstr(fmt::format("{}: {} in the run, {} now", option, was, is)), HasSubstr("--fresh")));
  }
  EXPECT_EQ(read_file(run + "/config.yaml"), written);
  expect_same(trace_of(run), before, "untouched");
}

TEST_F(RunFolders, WhatMayChangeIsTaken) {
  ASSERT_EQ(train().code, 0);
  Outcome done = train();
  EXPECT_EQ(done.text.find("training.max_steps was"), std::string::npos);
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(done.text, HasSubstr("done already: 4 steps; set training.max_steps higher to go on"));
  int64_t steps = 4;
  for (const char* changed :
       {"run.threads=2", "logging.level=DEBUG", "logging.every=1", "activations=keep_none", "activations={every: 2}",
        "activations={keep: [qkv, att]}", "checkpoint.every=3", "checkpoint.keep_last=1", "training.eval_every=5",
        "training.eval_batches=1", "training.max_skipped_steps=3", "run.device=cpu"}) {
    ++steps;
    Outcome o = train({changed, fmt::format("training.max_steps={}", steps)});
    EXPECT_EQ(o.code, 0) << changed << ": " << o.text;
    EXPECT_EQ(metrics_of(run).size(), static_cast<size_t>(steps)) << changed;
    EXPECT_THAT(o.text, HasSubstr(fmt::format("training.max_steps was {} and is {}", steps - 1, steps)));
  }
  EXPECT_THAT(read_file(run + "/config.yaml"), HasSubstr(fmt::format("max_steps: {}", steps)));
}

TEST_F(RunFolders, TheDefaultIsNamedAfterTheConfiguration) {
  const std::string line = "cd " + dir.path() + " && " CHIRON_PROGRAM " train small.yaml >/dev/null 2>&1";
  ASSERT_EQ(std::system(line.c_str()), 0);
  EXPECT_EQ(metrics_of(dir / "runs/small").size(), 4u);
  EXPECT_TRUE(file_exists(dir / "runs/small/config.yaml"));
  // The configuration that was written down is one to train from, and means the same.
  const std::string again = "cd " + dir.path() +
                            " && " CHIRON_PROGRAM
                            " train runs/small/config.yaml --set training.max_steps=5 >/dev/null 2>&1";
  ASSERT_EQ(std::system(again.c_str()), 0);
  EXPECT_EQ(metrics_of(dir / "runs/small").size(), 5u);
}

TEST_F(RunFolders, BadDataLeavesNoTrace) {
  Outcome o = train({"data.synthetic=false", "data.train=[" + dir / "absent" + "]"});
  EXPECT_EQ(o.code, 3) << o.text;
  EXPECT_THAT(o.text, HasSubstr(dir / "absent"));
  EXPECT_FALSE(directory_exists(run));
}

TEST_F(RunFolders, AnotherVocabularyIsRefused) {
  write_file(dir / "a.txt", std::string(300, 'a') + std::string(300, 'b'));
  ASSERT_EQ(chiron(dir.path(), {"prepare", dir / "a.txt", "--out", dir / "data"}).code, 0);
  const Words sets = {"data.synthetic=false", "data.train=[" + dir / "data" + "]", "model.vocab_size=300"};
  ASSERT_EQ(train(sets).code, 0);
  ASSERT_EQ(
      chiron(dir.path(), {"prepare", dir / "a.txt", "--out", dir / "data", "--train-bpe", "260", "--overwrite"}).code,
      0);
  Outcome o = train(sets + Words{"training.max_steps=5"});
  EXPECT_EQ(o.code, 3) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("another vocabulary"), HasSubstr(dir / "data")));
}

TEST_F(RunFolders, AFailedStartBindsNobody) {
  // Too large for the address space it may take: nothing was trained, so a smaller model may take the folder. (Where
  // the machine has less memory than that, there is no folder yet.)
  const std::string limited = "ulimit -v 4000000; exec " CHIRON_PROGRAM " train " + config + " --out " + run;
  if (!kSanitized) {
    EXPECT_EQ(shell(limited + " --set model.vocab_size=100000000").code, 5);
  }
  Outcome second = train();
  EXPECT_EQ(second.code, 0) << second.text;
}

TEST_F(RunFolders, AForeignFolderIsRefused) {
  make_directories(run);
  write_file(run + "/letter.txt", "dear");
  Outcome o = train();
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.text, HasSubstr("is not empty and holds no run"));
  EXPECT_EQ(list_directory(run), std::vector<std::string>{"letter.txt"});
}

TEST_F(RunFolders, WithoutItsConfigurationARunIsNotResumed) {
  ASSERT_EQ(train().code, 0);
  remove_file(run + "/config.yaml");
  Outcome o = train({"training.learning_rate=0.5", "training.max_steps=6"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.text, HasSubstr("config.yaml is gone"));
}

TEST_F(RunFolders, ReplacedDataIsRefused) {
  auto prepare = [&](const std::string& text) {
    write_file(dir / "text.txt", text);
    ASSERT_EQ(chiron(dir.path(), {"prepare", dir / "text.txt", "--out", dir / "data", "--overwrite"}).code, 0);
  };
  const Words sets = {"data.synthetic=false", "data.train=" + dir / "data", "model.vocab_size=256"};
  prepare(std::string(500, 'a'));
  ASSERT_EQ(train(sets).code, 0);
  prepare(std::string(500, 'b'));
  Outcome o = train(sets + Words{"training.max_steps=6"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.text, HasSubstr("on other data"));
  prepare(std::string(500, 'a'));
  EXPECT_EQ(train(sets + Words{"training.max_steps=6"}).code, 0);
}

TEST_F(RunFolders, ATrailingSlashIsNoOtherFolder) {
  ASSERT_EQ(train().code, 0);
  run += "/";
  EXPECT_EQ(train({}, {"--fresh"}).code, 0);
  EXPECT_TRUE(directory_exists(dir / "run.1"));
}

TEST_F(RunFolders, AReaderThatGoesAwayEndsNoRun) {
  Outcome o = shell("{ " CHIRON_PROGRAM " train " + config + " --out " + run +
                    " --set training.max_steps=40 --set logging.level=DEBUG; echo code $? >&2; } | head -1");
  EXPECT_THAT(o.text, HasSubstr("code 0")) << o.text;
  EXPECT_TRUE(directory_exists(run + "/checkpoints/step-00000040"));
}

TEST_F(RunFolders, ClosedOutputsDoNotWriteIntoTheRun) {
  Outcome o = shell(CHIRON_PROGRAM " train " + config + " --out " + run + " >&- 2>&- <&-");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(metrics_of(run).size(), 4u);
}

TEST_F(RunFolders, AFileSizeLimitIsAnErrorOfTheWrite) {
  Outcome o = shell("ulimit -f 8; exec " CHIRON_PROGRAM " train " + config + " --out " + run + " > /dev/null");
  EXPECT_EQ(o.code, 4);
  EXPECT_THAT(o.text, HasSubstr("File too large"));
  EXPECT_EQ(train().code, 0);
}

TEST_F(RunFolders, AnErrorThatNobodyHearsIsOneStill) {
  EXPECT_EQ(shell(CHIRON_PROGRAM " trian 2> /dev/full").code, 2);
  EXPECT_EQ(shell(CHIRON_PROGRAM " eval gone --data gone 2> /dev/full > /dev/full").code, 3);
  EXPECT_EQ(shell(CHIRON_PROGRAM " --help 2> /dev/full > /dev/full").code, 4);
  EXPECT_EQ(shell(CHIRON_PROGRAM " doctor > /dev/full").code, 4);
  EXPECT_EQ(shell(CHIRON_PROGRAM " train " + config + " --out " + run + " 2> /dev/full").code, 0);
}

TEST_F(RunFolders, ThreadsThatCannotBeStartedAreNamed) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  // The address space has room for so many stacks: none, one, a few.
  auto limited = [&](int stack_mb, int threads) {
    Outcome o = shell(fmt::format("ulimit -s {}; ulimit -v 2500000; exec timeout 50 " CHIRON_PROGRAM
                                  " train {} --out {} --set run.threads={}",
                                  stack_mb * 1000, config, run, threads));
    EXPECT_EQ(o.code, 5) << o.text;
    return o.text;
  };
  EXPECT_THAT(limited(4000, 2), HasSubstr("only 1 of 2 threads could be started"));
  EXPECT_THAT(limited(500, 64), AllOf(HasSubstr("of 64 threads could be started"), HasSubstr("set run.threads")));
  EXPECT_THAT(limited(4000, 1), HasSubstr("the thread that reads data could not be started"));
}

TEST_F(RunFolders, AsManyCheckpointsStayAsWereAskedFor) {
  ASSERT_EQ(train({"checkpoint.every=1", "checkpoint.keep_last=4294967297"}).code, 0);
  EXPECT_EQ(find_checkpoints(run + "/checkpoints").whole.size(), 4u);
}

TEST_F(RunFolders, StepLinesAreOfTheLevelInfo) {
  EXPECT_THAT(train().text, HasSubstr("step 1/4"));
  for (const char* level : {"WARNING", "ERROR"})
    EXPECT_EQ(train({fmt::format("logging.level={}", level)}, {"--fresh"}).text, "") << level;
  EXPECT_EQ(metrics_of(run).size(), 4u);
}

TEST_F(RunFolders, AFolderThatIsMovedIsNotWrittenTo) {
  auto start = [&] {
    return Process(
        {"train", config, "--out", run, "--set", "training.max_steps=100000000", "--set", "checkpoint.every=0"},
        dir / "first.txt");
  };
  for (bool replaced : {false, true}) {
    Process first = start();
    ASSERT_TRUE(eventually([&] { return file_exists(run + "/metrics.jsonl"); }));
    const std::string moved = fmt::format("{}-moved-{}", run, replaced);
    rename_path(run, moved);
    if (replaced) {
      ASSERT_EQ(train().code, 0);
    }
    const Trace other = trace_of(run);
    first.signal(SIGTERM);
    Outcome o = first.wait();
    EXPECT_EQ(o.code, 4) << o.text;
    EXPECT_THAT(o.text, AllOf(HasSubstr("is no longer this run's folder"), HasSubstr(run + "/lock")));
    EXPECT_EQ(directory_exists(run), replaced);
    expect_same(trace_of(run), other, "the other's");
    EXPECT_FALSE(newest_checkpoint(moved + "/checkpoints"));
    remove_tree(run);
  }
}

TEST_F(RunFolders, DataThatIsCutShortIsNamed) {
  write_file(dir / "a.txt", std::string(100'000, 'a'));
  ASSERT_EQ(chiron(dir.path(), {"prepare", dir / "a.txt", "--out", dir / "data"}).code, 0);
  for (const char* mask : {"false", "true"}) {
    run = dir / fmt::format("masked-{}", mask);
    Process first({"train", config, "--out", run, "--set", "training.max_steps=100000000", "--set",
                   "data.synthetic=false", "--set", "data.train=" + dir / "data", "--set", "model.vocab_size=256",
                   "--set", fmt::format("data.document_mask={}", mask)},
                  dir / "first.txt");
    ASSERT_TRUE(eventually([&] { return file_exists(run + "/metrics.jsonl"); }));
    const std::string file = dir / "data/tokens-00000.bin", whole = read_file(file);
    ASSERT_EQ(::truncate(file.c_str(), 300), 0);
    Outcome o = first.wait();
    EXPECT_EQ(o.code, 4) << o.text;
    EXPECT_THAT(o.text, AllOf(HasSubstr(file), HasSubstr("cut it short")));
    FileWriter again(file);
    again.write(whole);
    again.close();
  }
}

TEST_F(RunFolders, TwoPreparesDoNotMeet) {
  for (const char* name : {"a.txt", "b.txt"}) write_file(dir / name, std::string(600'000, name[0]));
  auto prepare = [&](const char* name) {
    return Words{"prepare", dir / name, "--out", dir / "data", "--train-bpe", "260", "--overwrite"};
  };
  Process first(prepare("a.txt"), dir / "first.txt");
  ASSERT_TRUE(eventually([&] { return file_exists(dir / ".data.chiron-lock"); }));
  Outcome second = chiron(dir.path(), prepare("b.txt"));
  EXPECT_EQ(second.code, 4) << second.text;
  EXPECT_THAT(second.text, HasSubstr(".data.chiron-lock is locked by process"));
  Outcome o = first.wait();
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(chiron(dir.path(), prepare("b.txt")).code, 0);
}

TEST_F(RunFolders, LostOutputIsAnError) {
  EXPECT_EQ(shell(CHIRON_PROGRAM " config show " + config + " > /dev/full").code, 4);
  EXPECT_EQ(shell(CHIRON_PROGRAM " --help > /dev/full").code, 4);
}

TEST_F(RunFolders, AnEvaluationIsNoPartOfTheSpeed) {
  Outcome o = train({"training.eval_every=1", "training.eval_batches=1000"});
  ASSERT_EQ(o.code, 0) << o.text;
  for (const auto& line : metrics_of(run)) {
    const double seconds = line["step_seconds"], other = line["other_seconds"];
    EXPECT_GT(other, seconds);  // a thousand batches, beside one
    EXPECT_NEAR(line["tokens_per_second"].get<double>() * seconds, 24, 1e-6);
  }
}

TEST_F(RunFolders, ASignalEndsAnEvaluation) {
  Process run_process(
      {"train", config, "--out", run, "--set", "training.eval_every=1", "--set", "training.eval_batches=0"},
      dir / "out.txt");
  ASSERT_TRUE(eventually([&] { return file_exists(run + "/metrics.jsonl"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  run_process.signal(SIGTERM);
  Outcome o = run_process.wait();
  EXPECT_EQ(o.code, 75) << o.text;
  EXPECT_TRUE(directory_exists(run + "/checkpoints/step-00000001"));
}

}  // namespace
}  // namespace chiron::tests
