// Training, evaluation and generation on a GPU: the numbers of the CPU, and the same bits whatever is kept or replayed.

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "base/error_testing.h"
#include "core/gpu_testing.h"
#include "support/drawn_model.h"
#include "support/tiny_run.h"
#include "train/check.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/inference.h"

namespace chiron::tests {
namespace {

/// As tiny_options, but an emulator shall finish too.
Options small_options(Family family) {
  Options o = tiny_options(family);
  if (!gpu_is_emulated()) return o;
  o.model = {.family = family, .num_layers = 2, .d_model = 16, .num_heads = 2, .vocab_size = 41};
  o.model.num_kv_heads = family == Family::llama ? 1 : 0;
  o.model.tie_embeddings = family == Family::gpt2;
  o.training.batch_size = 2;
  o.training.seq_len = 9;
  resolve(o.model);
  return o;
}

void drop_out(Options& o, double p) {
  o.model.dropout = o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout = p;
}

/// An emulator runs half of the combinations.
bool too_slow(Family family, bool amp) { return gpu_is_emulated() && (family == Family::llama) != amp; }

/// What some steps leave behind.
struct Steps {
  std::vector<StepScalars> scalars;
  std::vector<char> weights;
};

Steps steps_of(TinyRun& run, int64_t n) {
  Steps steps;
  for (int64_t i = 0; i < n; ++i) steps.scalars.push_back(run.run(i));
  steps.weights = run.weights();
  return steps;
}

void expect_same(const Steps& got, const Steps& want, const std::string& what) {
  ASSERT_EQ(got.scalars.size(), want.scalars.size());
  for (size_t i = 0; i < want.scalars.size(); ++i)
    EXPECT_EQ(std::memcmp(&got.scalars[i], &want.scalars[i], sizeof(StepScalars)), 0) << what << ", step " << i;
  EXPECT_EQ(got.weights, want.weights) << what;
}

class GpuTraining : public testing::Test {
  void SetUp() override {
    if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(GpuTraining, BeginsWithTheCpusWeights) {
  for (Family family : {Family::gpt2, Family::llama}) {
    const Options o = small_options(family);
    EXPECT_EQ(TinyRun(o, 1, false, kGpu).weights(), TinyRun(o, 2).weights());
  }
}

TEST_F(GpuTraining, PoliciesGiveTheSameBits) {
  using Kind = Activations::Kind;
  for (Family family : {Family::gpt2, Family::llama})
    for (bool amp : {false, true}) {
      if (too_slow(family, amp)) continue;
      Options o = small_options(family);
      drop_out(o, amp ? 0.2 : 0);
      o.training.use_amp = amp;
      TinyRun all(o, 1, false, kGpu);
      const Steps want = steps_of(all, 2);
      ASSERT_EQ(want.scalars.back().applied, 2);
      for (const Activations& a : {Activations{.kind = Kind::keep_none}, Activations{.kind = Kind::every, .every = 2},
                                   Activations{.kind = Kind::keep, .slots = {"qkv", "att"}}}) {
        o.activations = a;
        TinyRun run(o, 1, false, kGpu);
        expect_same(steps_of(run, 2), want, a.yaml());
        EXPECT_LT(run.saved_bytes, all.saved_bytes) << a.yaml();
      }
    }
}

TEST_F(GpuTraining, GraphsGiveTheSameBits) {
  for (Family family : {Family::gpt2, Family::llama})
    for (bool amp : {false, true}) {
      if (too_slow(family, amp)) continue;
      Options o = small_options(family);
      drop_out(o, 0.1);
      o.training.use_amp = amp;
      o.training.gradient_accumulation = 3;  // a first, a middle and a last
      o.training.loss_chunk = amp ? 7 : 0;
      o.data.document_mask = amp;
      if (amp) o.activations = {.kind = Activations::Kind::keep_none};
      o.run.graphs = Graphs::off;
      TinyRun off(o, 1, false, kGpu);
      const Steps want = steps_of(off, 4);
      EXPECT_NE(want.scalars[3].sums[0], want.scalars[2].sums[0]);
      for (Graphs graphs : {Graphs::unit, Graphs::step})
        for (bool split : {false, true}) {
          if (split && (amp || graphs == Graphs::step)) continue;
          o.run.graphs = graphs;
          TinyRun run(o, 1, split, kGpu);
          expect_same(steps_of(run, 4), want, fmt::format("graphs {}, split {}", static_cast<int>(graphs), split));
        }
    }
}

TEST_F(GpuTraining, AGraphOfAStepIsOneLaunch) {
  for (Graphs graphs : {Graphs::off, Graphs::unit, Graphs::step}) {
    Options o = small_options(Family::gpt2);
    o.run.graphs = graphs;
    TinyRun run(o, 1, false, kGpu);
    for (int64_t n = 0; n < 2; ++n) run.run(n);  // the first warms up, the second captures
    run.step->set_poison(nullptr);
    const FailedLaunch second(2, "a second launch", false);
    const std::string error = message_of<DeviceError>([&] { EXPECT_EQ(run.run(2).applied, 3); });
    EXPECT_THAT(error, testing::HasSubstr(graphs == Graphs::step ? "no error" : "a second launch"));
  }
}

TEST_F(GpuTraining, ATracedStepRunsOpByOp) {
  struct Count final : Trace {
    int64_t ops = 0;
    void begin(const OpInfo&) override { ++ops; }
    void end(const OpInfo&) override {}
  } count;
  TinyRun run(small_options(Family::gpt2), 1, false, kGpu);
  for (int64_t n = 0; n < 3; ++n) run.run(n);
  run.s.set_trace(&count);
  run.run(3);
  EXPECT_GT(count.ops, 50);
}

TEST_F(GpuTraining, FollowsTheCpu) {
  const bool emulated = gpu_is_emulated();
  const int64_t steps = emulated ? 24 : 200, last = emulated ? 8 : 20;
  for (Family family : {Family::gpt2, Family::llama})
    for (bool amp : {false, true}) {
      if (too_slow(family, amp)) continue;
      Options o = small_options(family);
      o.training.use_amp = amp;
      o.training.gradient_accumulation = 1;
      TinyRun cpu(o), gpu(o, 1, false, kGpu);
      double mean[2] = {0, 0};
      float first = 0, loss = 0;
      for (int64_t n = 0; n < steps; ++n) {
        const float want = cpu.run(n, 3e-3f).loss;
        loss = gpu.run(n, 3e-3f).loss;
        if (n == 0) first = loss;
        if (!amp) {
          EXPECT_NEAR(loss, want, 0.01f * want) << "step " << n;
        }
        if (n < steps - last) continue;
        mean[0] += static_cast<double>(want);
        mean[1] += static_cast<double>(loss);
      }
      EXPECT_NEAR(mean[1] / mean[0], 1, 0.01) << (amp ? "bf16" : "f32");
      EXPECT_LT(loss, first) << "it learns";
    }
}

TEST_F(GpuTraining, TakesNoMemoryInAStep) {
  Options o = small_options(Family::llama);
  o.run.graphs = Graphs::unit;
  TinyRun run(o, 1, false, kGpu);
  for (int64_t n = 0; n < 3; ++n) run.run(n);
  auto free = [] {
    if constexpr (gpu::kBuilt) return gpu::free_memory(kGpu.index);
    return int64_t{0};
  };
  const int64_t before = free();
  for (int64_t n = 3; n < 6; ++n) run.run(n);
  EXPECT_EQ(free(), before);
}

class GpuGolden : public testing::TestWithParam<const char*> {};

TEST_P(GpuGolden, AgreesWithTheReference) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string folder = std::string(CHIRON_SOURCE_DIR "/tests/golden/") + GetParam();
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  Log log;
  size_t compared = 0;
  for (const Comparison& r : check_model(s, folder, folder + "/expected.safetensors", 0, log)) {
    EXPECT_TRUE(r.passed()) << r.name << ": " << r.error << " > " << r.allowed;
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

INSTANTIATE_TEST_SUITE_P(Folders, GpuGolden, testing::Values("gpt2", "llama", "llama3_rope_tied"));

class GpuInference : public GpuTraining {};

TEST_F(GpuInference, ContinuesAsTheCpuDoes) {
  for (Family family : {Family::gpt2, Family::llama}) {
    std::vector<int32_t> texts[2];
    std::vector<float> logits[2];
    for (Device device : {Device{}, kGpu}) {
      const auto i = static_cast<size_t>(device.kind);
      ThreadPool pool(1);
      Stream s(device, pool);
      Log log;
      // Written on the CPU, read where it is used.
      const SavedModel m = drawn_model(s, small_config(family));
      const std::vector<int32_t> prompt = {1, 5, 9, 13, 2};
      generate(s, m, prompt, {.temperature = 0}, 6, [&](int32_t id) {
        texts[i].push_back(id);
        return true;
      });
      Inference inference(s, m, DType::f32);
      auto all = inference.logits(prompt, Inference::Rows::all);
      logits[i].assign(all.begin(), all.end());
    }
    EXPECT_EQ(texts[1], texts[0]);
    ASSERT_EQ(logits[1].size(), 5u * 67u);
    for (size_t i = 0; i < logits[0].size(); ++i) EXPECT_NEAR(logits[1][i], logits[0][i], 2e-4);
  }
}

TEST_F(GpuInference, EvaluatesAsTheCpuDoes) {
  double loss[2] = {0, 0};
  for (Device device : {Device{}, kGpu}) {
    ThreadPool pool(1);
    Stream s(device, pool);
    const SavedModel m = drawn_model(s, small_config(Family::llama));
    const Loader loader(std::make_shared<SyntheticSource>(SyntheticOptions{.vocab_size = 67, .num_tokens = 200}),
                        {.sequences = 2, .length = 20, .shuffle = false, .document_mask = true, .once = true});
    const Evaluation e = evaluate_model(s, m, loader);
    EXPECT_GT(e.tokens, 150);
    loss[static_cast<size_t>(device.kind)] = e.loss();
  }
  EXPECT_NEAR(loss[1], loss[0], 1e-4 * loss[0]);
}

}  // namespace
}  // namespace chiron::tests
