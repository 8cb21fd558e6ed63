// Runs on a GPU, from their start to their end or to what ends them.

#include <gmock/gmock.h>

#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "cli/program.h"
#include "core/gpu_testing.h"
#include "support/program.h"
#include "train/memory.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace chiron::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kConfig = R"(
model: {family: gpt2, num_layers: 1, d_model: 16, num_heads: 2, vocab_size: 32, dropout: 0.1}
training:
  {batch_size: 2, seq_len: 8, max_steps: 6, learning_rate: 1e-2, warmup_steps: 2, eval_every: 3, eval_batches: 1}
data: {synthetic: true}
checkpoint: {every: 2}
run: {threads: 1, device: gpu}
logging: {level: WARNING}
)";

class GpuRun : public testing::Test {
 protected:
  void SetUp() override {
    if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    write_file(dir / "c.yaml", kConfig);
  }
  Words train(const std::string& run, const Words& sets = {}) const {
    Words words = {"train", dir / "c.yaml", "--out", dir / run};
    for (const std::string& s : sets) words = words + Words{"--set", s};
    return words;
  }
  void expect_done(const Words& words) {
    Outcome o = chiron(dir.path(), words);
    ASSERT_EQ(o.code, 0) << o.text;
  }
  /// In this process, where faults can be injected: exit code and what went to the error output.
  Outcome here(const Words& words) {
    testing::internal::CaptureStderr();
    const int code = cli::run_program(words);
    return {code, testing::internal::GetCapturedStderr()};
  }
  /// The same commands on one device or the other.
  std::vector<double> losses(const std::string& run) {
    std::vector<double> all;
    for (const auto& line : metrics_of(dir / run)) all.push_back(line["loss"]);
    return all;
  }
  TempDir dir;
};

TEST_F(GpuRun, ChoosesTheDevice) {
  Log log(LogLevel::error);
  EXPECT_EQ(choose_device(DeviceChoice::cpu, log), Device{});
  EXPECT_EQ(choose_device(DeviceChoice::gpu, log), kGpu);
  EXPECT_EQ(choose_device(DeviceChoice::automatic, log), gpu_is_emulated() ? Device{} : kGpu);
}

TEST_F(GpuRun, ResumesToTheSameBits) {
  for (const char* graphs : {"run.graphs=step", "run.graphs=unit"}) {
    expect_done(train("whole", {graphs}) + Words{"--fresh"});
    expect_done(train("parts", {graphs, "training.lr_schedule=constant", "training.max_steps=3"}) + Words{"--fresh"});
    expect_done(train("whole2", {graphs, "training.lr_schedule=constant"}) + Words{"--fresh"});
    expect_done(train("parts", {graphs, "training.lr_schedule=constant"}));
    expect_same(trace_of(dir / "parts"), trace_of(dir / "whole2"), graphs);
  }
}

TEST_F(GpuRun, ResumesOnAnotherDevice) {
  const Words constant = {"training.lr_schedule=constant"};
  auto on = [&](const char* device, int64_t steps) {
    return constant + Words{fmt::format("run.device={}", device), fmt::format("training.max_steps={}", steps)};
  };
  expect_done(train("cpu", on("cpu", 9)));
  expect_done(train("both", on("cpu", 3)));
  expect_done(train("both", on("gpu", 6)));
  expect_done(train("both", on("cpu", 9)));
  const auto got = losses("both"), want = losses("cpu");
  ASSERT_EQ(got.size(), 9u);
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(got[i], want[i], 0.01 * want[i]) << i;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got[i], want[i]) << i;
}

TEST_F(GpuRun, TheOtherCommandsTakeTheDevice) {
  write_file(dir / "a.txt", "some text that is long enough to be cut into a few sequences of tokens");
  expect_done({"prepare", dir / "a.txt", "--out", dir / "data"});
  expect_done(train("run", {"model.vocab_size=256", "data.synthetic=false", "data.train=[" + dir / "data" + "]"}));
  std::vector<std::string> texts;
  std::vector<double> losses;
  for (const char* device : {"gpu", "cpu"}) {
    Outcome o = chiron(dir.path(), {"generate", dir / "run", "--prompt", "some ", "--temperature", "0", "--max-tokens",
                                    "12", "--device", device});
    EXPECT_EQ(o.code, 0) << o.text;
    texts.push_back(o.text.substr(o.text.find("some ")));
    o = chiron(dir.path(), {"eval", dir / "run", "--data", dir / "data", "--device", device});
    EXPECT_EQ(o.code, 0) << o.text;
    losses.push_back(std::stod(o.text.substr(o.text.find("loss ") + 5)));
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NEAR(losses[0], losses[1], 2e-4);
  expect_done({"plan", dir / "c.yaml"});
  Outcome bench = chiron(dir.path(), {"bench", "step", "--config", dir / "c.yaml", "--steps", "1"});
  EXPECT_EQ(bench.code, 0) << bench.text;
  EXPECT_THAT(bench.text, AllOf(HasSubstr("tflop_per_second"), HasSubstr("tokens_per_second"), HasSubstr("adamw")));
}

TEST_F(GpuRun, ALostDeviceEndsTheRunAndLeavesTheCheckpoint) {
  for (const char* graphs : {"off", "unit", "step"})
    for (bool lost : {true, false}) {
      const std::string run = fmt::format("{}-{}", graphs, lost), mode = fmt::format("run.graphs={}", graphs);
      const Words constant = {mode, "training.lr_schedule=constant", "training.eval_every=0", "checkpoint.every=0"};
      expect_done(train(run, constant + Words{"training.max_steps=2"}));
      const std::string before = newest_checkpoint(dir / run + "/checkpoints")->path;
      // Somewhere in a step, and later and later, until graphs are what is launched.
      Outcome o;
      const char* expected = graphs == std::string("off")    ? ": "
                             : graphs == std::string("unit") ? "a unit as a graph (run.graphs: off names the op)"
                                                             : "a training step as a graph (run.graphs: off";
      for (int64_t n = 40; n < 4000; n += 40) {
        const FailedLaunch fault(n, "an injected fault", lost);
        o = here(train(run, constant + Words{"training.max_steps=1000000"}));
        ASSERT_EQ(o.code, 5) << o.text;
        EXPECT_THAT(o.text, HasSubstr("failed: an injected fault")) << run;
        EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << "one message: " << o.text;
        if (o.text.find(expected) != std::string::npos) break;
        EXPECT_THAT(o.text, testing::ContainsRegex(" of (f32|i32|u8)\\([0-9, ]*\\)|: step_(begin|decide): "))
            << "op and shapes, where it has operands";
      }
      EXPECT_THAT(o.text, HasSubstr(expected));
      EXPECT_EQ(newest_checkpoint(dir / run + "/checkpoints")->path, before);
      Checkpoint whole(before);  // checks every hash
      expect_done(train(run, constant + Words{"training.max_steps=3"}));
    }
}

/// A run whose batches are too large for the GPU, while its weights fit.
Options too_large() {
  Options o;
  o.model = {.family = Family::gpt2, .num_layers = 4, .d_model = 64, .num_heads = 4, .vocab_size = 4096};
  resolve(o.model);
  o.training.seq_len = 256;
  o.data.synthetic = true;
  for (o.training.batch_size = 8;; o.training.batch_size *= 2) {
    const auto model = make_model(model_setup(o, 0));
    if (make_plan(o, *model, kGpu).asked() > free_memory(kGpu)) return o;
  }
}

TEST_F(GpuRun, TooLittleMemoryIsSaidBeforehandWithWhatWouldFit) {
  Options o = too_large();
  const auto model = make_model(model_setup(o, 0));
  const Plan plan = make_plan(o, *model, kGpu);
  Log log;
  const std::string text = message_of<DeviceError>([&] { check_memory(plan, o, *model, kGpu, log); });
  EXPECT_THAT(text, AllOf(HasSubstr("the run needs"), HasSubstr("by plan"), HasSubstr("weights"), HasSubstr("logits"),
                          HasSubstr("training.gradient_accumulation: 2 (needs")));
  o.training.batch_size /= 2;
  o.training.gradient_accumulation *= 2;
  const Plan half = make_plan(o, *model, kGpu);
  EXPECT_EQ(message_of<DeviceError>([&] { check_memory(half, o, *model, kGpu, log); }), "no error");
}

TEST_F(GpuRun, TooLittleMemoryIsADeviceError) {
  const Options o = too_large();
  Outcome out =
      here(train("run", {"model.num_layers=4", "model.d_model=64", "model.num_heads=4", "model.vocab_size=4096",
                         "training.seq_len=256", fmt::format("training.batch_size={}", o.training.batch_size)}));
  EXPECT_EQ(out.code, 5) << out.text;
  EXPECT_THAT(out.text, AllOf(HasSubstr("out of memory"), HasSubstr("training.batch_size: ")));
  EXPECT_FALSE(directory_exists(dir / "run")) << "nothing was begun";
  EXPECT_THAT(message_of<OutOfMemory>([] { Buffer(kGpu, free_memory(kGpu) + (int64_t{1} << 30)); }),
              HasSubstr("out of memory"));
}

TEST_F(GpuRun, TakesTheMemoryOfThePlan) {
  Options o = load_options(dir / "c.yaml");
  o.run.dir = dir / "run";
  o.model.d_model = o.model.d_ff = 0;
  const bool small = gpu_is_emulated();
  o.model = {
      .family = Family::llama, .num_layers = 4, .d_model = small ? 256 : 2048, .num_heads = 8, .vocab_size = 512};
  resolve(o.model);
  o.training.batch_size = small ? 2 : 16;
  o.training.seq_len = small ? 128 : 1024;
  const auto model = make_model(model_setup(o, 0));
  GemmChoices choices(kGpu);
  const auto planned = static_cast<double>(make_plan(o, *model, kGpu, &choices).asked());
  Log log(LogLevel::error);
  {
    ThreadPool pool(1);
    Stream s(kGpu, pool);
  }  // the driver's own part
  const int64_t before = free_memory(kGpu);
  SelfCommunicator world;
  const Trainer trainer(o, false, log, world);
  const auto taken = static_cast<double>(before - free_memory(kGpu));
  EXPECT_NEAR(taken / planned, 1, 0.03) << taken << " of " << planned;
  EXPECT_GT(planned, small ? 20e6 : 2e9);
}

TEST(DeviceChoice, SaysWhyThereIsNoGpu) {
  Log log(LogLevel::error);
  if (why_no_gpu().empty()) GTEST_SKIP() << "there is one";
  EXPECT_THAT(message_of<DeviceError>([&] { choose_device(DeviceChoice::gpu, log); }),
              AllOf(HasSubstr("device gpu: "), HasSubstr("use cpu or auto")));
  EXPECT_EQ(choose_device(DeviceChoice::automatic, log), Device{});
}

}  // namespace
}  // namespace chiron::tests
