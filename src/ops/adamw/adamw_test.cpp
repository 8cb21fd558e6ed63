#include "ops/adamw/adamw.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/device_testing.h"
#include "ops/norm/norm.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(AdamW, Cases) { expect_cases(adamw_cases()); }

TEST(AdamW, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(adamw_cases()); }

using AdamWStep = OnDevice;
INSTANTIATE_TEST_SUITE_P(Cpu, AdamWStep, testing::Values(kCpu));
INSTANTIATE_TEST_SUITE_P(Gpu, AdamWStep, testing::Values(kGpu));

/// The state of one parameter.
struct State {
  DeviceArray<float> master, grad, m, v;
  DeviceArray<bf16> compute;
  bool decay, narrow;

  State(Stream& s, const std::vector<float>& w, const std::vector<float>& g, bool decays, bool has_narrow)
      : master(s, w),
        grad(s, g),
        m(s, std::vector<float>(w.size())),
        v(s, std::vector<float>(w.size())),
        compute(s, std::vector<bf16>(w.size())),
        decay(decays),
        narrow(has_narrow) {}
  State(Stream& s, size_t n, float w, float g, bool decays, bool has_narrow)
      : State(s, std::vector<float>(n, w), std::vector<float>(n, g), decays, has_narrow) {}

  Shard shard() const {
    return {.param = 0,
            .master = master.tensor(),
            .compute = narrow ? compute.tensor() : Tensor{},
            .grad = grad.tensor(),
            .m = m.tensor(),
            .v = v.tensor(),
            .decay = decay};
  }
  /// All that an update writes, as bits.
  std::vector<uint32_t> bits() const {
    std::vector<uint32_t> all;
    for (const auto* array : {&master, &m, &v})
      for (float x : array->read()) all.push_back(std::bit_cast<uint32_t>(x));
    for (bf16 x : compute.read()) all.push_back(x.bits);
    return all;
  }
};

/// A step of the whole guard: norm, decision, update.
struct Step {
  ThreadPool pool{2};
  Stream s;
  StepScalars v;  ///< what the device has

  explicit Step(Device device) : s(device, pool) {
    v.learning_rate = 1e-2f;
    v.tokens = 10;
    v.sums[1] = 25;
  }
  void run(const std::vector<Shard>& list) {
    Stack temp(s.device(), 4096);
    const Shards shards = make_shards(s, temp, list);
    DeviceArray<StepScalars> scalars(s, {v});
    squared_norm(s, scalars.data(), shards, temp);
    step_decide(s, scalars.data());
    adamw(s, scalars.data(), shards, {});
    v = scalars.read()[0];
  }
};

TEST_P(AdamWStep, ExemptParametersStayWithoutGradients) {
  Step step(GetParam());
  State exempt(step.s, 37, 1, 0, false, false), decayed(step.s, 37, 1, 0, true, false);
  for (int i = 0; i < 10; ++i) step.run({exempt.shard(), decayed.shard()});
  EXPECT_EQ(step.v.applied, 10);
  EXPECT_EQ(exempt.master.read(), std::vector<float>(37, 1));
  for (float w : decayed.master.read()) EXPECT_NEAR(w, std::pow(1 - 1e-3, 10), 1e-6);
}

TEST_P(AdamWStep, PoisonTouchesNothingAndTheGuardRecovers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float poison : {std::nanf(""), kInf, -kInf})
    for (bool in_loss : {false, true}) {
      Step step(GetParam());
      State a(step.s, 40, 0.5f, 0.1f, true, true), b(step.s, 16384 + 5, 1, 0.2f, true, true);
      step.run({a.shard(), b.shard()});
      const auto before_a = a.bits(), before_b = b.bits();
      const auto good = b.grad.read();
      auto bad = good;
      bad.back() = poison;
      if (in_loss)
        step.v.sums[1] = poison;
      else
        b.grad.write(bad);
      step.run({a.shard(), b.shard()});
      EXPECT_EQ(step.v.finite, 0);
      EXPECT_EQ(step.v.applied, 1);
      EXPECT_EQ(a.bits(), before_a);
      EXPECT_EQ(b.bits(), before_b);
      step.v.sums[1] = 25;
      b.grad.write(good);
      step.run({a.shard(), b.shard()});
      EXPECT_EQ(step.v.applied, 2);
      EXPECT_NE(a.bits(), before_a);
      for (float w : b.master.read()) ASSERT_TRUE(std::isfinite(w));
    }
}

/// Steps of 1e-5 are far below bf16's spacing of 2^-8 at 1; the master adds them up.
TEST_P(AdamWStep, NormWeightsMoveInBf16) {
  Step step(GetParam());
  State norm(step.s, 48, 1, 0.3f, false, true);
  step.v.learning_rate = 1e-5f;
  for (int i = 0; i < 100; ++i) step.run({norm.shard()});
  const auto master = norm.master.read();
  for (float w : master) EXPECT_NEAR(w, 1 - 100 * 1e-5, 2e-5);
  EXPECT_EQ(norm.compute.read()[0].bits, bf16(master[0]).bits);
  for (int i = 0; i < 200; ++i) step.run({norm.shard()});
  EXPECT_LT(static_cast<float>(norm.compute.read()[0]), 1);
}

TEST_P(AdamWStep, ComputeCopyIsTheRoundedMaster) {
  Step step(GetParam());
  constexpr int64_t kSize = 16384 + 1001;
  auto w = random_normal(kSize, 1), g = random_normal(kSize, 2);
  State state(step.s, {w.begin(), w.end()}, {g.begin(), g.end()}, true, true);
  step.run({state.shard()});
  const auto master = state.master.read();
  const auto compute = state.compute.read();
  for (size_t i = 0; i < master.size(); ++i) ASSERT_EQ(compute[i].bits, bf16(master[i]).bits) << i;
}

/// A fixed scale of a power of two changes no bit of the update: gradients come scaled and the clip factor undoes it.
TEST_P(AdamWStep, ALossScaleChangesNothing) {
  auto w = random_normal(1000, 1), g = random_normal(1000, 2);
  std::vector<uint32_t> want;
  for (float scale : {1.f, 4096.f}) {
    Step step(GetParam());
    step.v.loss_scale = scale;
    step.v.max_norm = 1;
    std::vector<float> scaled(g.begin(), g.end());
    for (float& x : scaled) x *= scale;
    State state(step.s, {w.begin(), w.end()}, scaled, true, true);
    for (int i = 0; i < 3; ++i) step.run({state.shard()});
    if (scale == 1) want = state.bits();
    EXPECT_EQ(state.bits(), want);
  }
}

TEST(AdamW, RefusesStateOfAnotherSize) {
  Step step(kCpu);
  State state(step.s, 8, 1, 0, false, false);
  Shard shard = state.shard();
  shard.m.shape = {7};
  EXPECT_THROW(adamw(step.s, &step.v, {&shard, 1}, {}), Bug);
}

}  // namespace
}  // namespace chiron
