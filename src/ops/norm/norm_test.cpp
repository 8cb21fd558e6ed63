#include "ops/norm/norm.h"

#include <cmath>
#include <limits>

#include "core/device_testing.h"
#include "ops/norm/step_rules.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Norm, Cases) { expect_cases(norm_cases()); }

TEST(Norm, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(norm_cases()); }

using StepGuard = OnDevice;
INSTANTIATE_TEST_SUITE_P(Cpu, StepGuard, testing::Values(kCpu));
INSTANTIATE_TEST_SUITE_P(Gpu, StepGuard, testing::Values(kGpu));

struct Step {
  explicit Step(Device device) : s(device, pool) {}
  ThreadPool pool{1};
  Stream s;
  StepScalars v;  ///< what the device has

  /// Runs an op on the scalars.
  template <class F>
  void on_device(F&& op) {
    DeviceArray<StepScalars> scalars(s, {v});
    op(scalars.data());
    v = scalars.read()[0];
  }
  void begin() {
    on_device([&](StepScalars* scalars) { step_begin(s, scalars); });
  }
  void decide(float squared_norm, float loss_sum, int32_t tokens) {
    v.tokens = tokens;
    v.sums[0] = squared_norm;
    v.sums[1] = loss_sum;
    on_device([&](StepScalars* scalars) { step_decide(s, scalars); });
  }
  /// The squared norm of one shard.
  float norm_of(const std::vector<float>& values) {
    DeviceArray<float> grad(s, values);
    const Shard shard{.master = grad.tensor(), .grad = grad.tensor()};
    Stack temp(s.device(), 4096);
    const Shards shards = make_shards(s, temp, {&shard, 1});
    on_device([&](StepScalars* scalars) { squared_norm(s, scalars, shards, temp); });
    return v.sums[0];
  }
};

TEST_P(StepGuard, TokenScale) {
  Step t(GetParam());
  t.v.tokens = 8;
  t.v.loss_scale = 1024;
  t.begin();
  EXPECT_EQ(t.v.token_scale, 128);
  t.v.tokens = 0;
  t.begin();
  EXPECT_EQ(t.v.token_scale, 0);
}

TEST_P(StepGuard, ClipsToTheLargestNorm) {
  Step t(GetParam());
  t.v.max_norm = 2;
  t.v.loss_scale = 4;
  t.decide(64 * 16, 30, 10);  // the norm is 8 once the loss scale is taken out
  EXPECT_EQ(t.v.loss, 3);
  EXPECT_EQ(t.v.grad_norm, 8);
  EXPECT_EQ(t.v.clip_factor, 0.25f / 4);
  EXPECT_EQ(t.v.finite, 1);
  EXPECT_EQ(t.v.applied, 1);
  t.decide(16, 30, 10);  // norm 1 is small enough
  EXPECT_EQ(t.v.clip_factor, 0.25f);
  EXPECT_EQ(t.v.applied, 2);
  t.v.max_norm = 0;  // no clipping
  t.decide(64 * 16, 30, 10);
  EXPECT_EQ(t.v.clip_factor, 0.25f);
  t.decide(0, 30, 10);  // no gradient at all is a finite one
  EXPECT_EQ(t.v.grad_norm, 0);
  EXPECT_EQ(t.v.finite, 1);
}

TEST_P(StepGuard, NonFiniteStepsAreNotApplied) {
  Step t(GetParam());
  t.v.max_norm = 1;
  t.v.applied = 5;
  for (float bad : {std::nanf(""), kInf, -kInf}) {
    t.decide(bad, 1, 10);
    EXPECT_EQ(t.v.finite, 0) << bad;
    t.decide(1, bad, 10);
    EXPECT_EQ(t.v.finite, 0) << bad;
  }
  t.decide(1, 1, 0);  // no label counts
  EXPECT_EQ(t.v.finite, 0);
  EXPECT_EQ(t.v.loss, 0);
  EXPECT_EQ(t.v.applied, 5);
  t.decide(1, 1, 10);  // the guard recovers
  EXPECT_EQ(t.v.finite, 1);
  EXPECT_EQ(t.v.applied, 6);
}

TEST_P(StepGuard, TheLossScaleGrowsAndBacksOff) {
  Step t(GetParam());
  t.v.loss_scale = 1024;
  t.v.scale_interval = 3;
  for (int i = 0; i < 2; ++i) t.decide(1, 30, 10);
  EXPECT_EQ(t.v.loss_scale, 1024);
  EXPECT_EQ(t.v.good_steps, 2);
  t.decide(1024.f * 1024 * 4, 30, 10);
  EXPECT_EQ(t.v.grad_norm, 2) << "by the scale of this step";
  EXPECT_EQ(t.v.clip_factor, 1.0f / 1024);
  EXPECT_EQ(t.v.loss_scale, 2048) << "for the next";
  EXPECT_EQ(t.v.good_steps, 0);
  EXPECT_EQ(t.v.applied, 3);
  t.begin();
  EXPECT_EQ(t.v.token_scale, 204.8f);

  t.decide(1, 30, 10);
  for (float scale : {1024.f, 512.f}) {
    t.decide(kInf, 30, 10);
    EXPECT_EQ(t.v.finite, 0);
    EXPECT_EQ(t.v.overflowed, 1);
    EXPECT_EQ(t.v.loss_scale, scale);
    EXPECT_EQ(t.v.good_steps, 0) << "the count starts anew";
  }
  EXPECT_EQ(t.v.loss, 3);
  EXPECT_EQ(t.v.applied, 4);
  t.decide(std::nanf(""), 30, 10);  // infinities that met
  EXPECT_EQ(t.v.loss_scale, 256);
  t.decide(1, 30, 10);
  EXPECT_EQ(t.v.finite, 1);
  EXPECT_EQ(t.v.overflowed, 0);
  EXPECT_EQ(t.v.good_steps, 1);
}

TEST_P(StepGuard, TheLossScaleHasLimitsAndChangesForOverflowsOnly) {
  Step t(GetParam());
  t.v.scale_interval = 1;
  t.v.loss_scale = kMaxLossScale;
  t.decide(1, 30, 10);
  EXPECT_EQ(t.v.loss_scale, kMaxLossScale);
  // A loss that is not finite, or no label, is not the scale's doing.
  for (float loss : {std::nanf(""), kInf}) {
    t.decide(kInf, loss, 10);
    EXPECT_EQ(t.v.overflowed, 0);
  }
  t.decide(0, 0, 0);
  EXPECT_EQ(t.v.overflowed, 0);
  EXPECT_EQ(t.v.loss_scale, kMaxLossScale);
  // Nor is an overflow at the lowest scale.
  t.v.loss_scale = 2;
  t.decide(kInf, 30, 10);
  EXPECT_EQ(t.v.loss_scale, kMinLossScale);
  EXPECT_EQ(t.v.overflowed, 1);
  t.decide(kInf, 30, 10);
  EXPECT_EQ(t.v.loss_scale, kMinLossScale);
  EXPECT_EQ(t.v.overflowed, 0);
  EXPECT_EQ(t.v.finite, 0);
  // A scale that is set stays.
  t.v.scale_interval = 0;
  t.v.loss_scale = 8;
  for (float norm : {1.f, kInf}) {
    t.decide(norm, 30, 10);
    EXPECT_EQ(t.v.loss_scale, 8);
    EXPECT_EQ(t.v.overflowed, 0);
  }
}

TEST_P(StepGuard, OverflowAndPoisonReachTheSum) {
  Step t(GetParam());
  std::vector<float> grad(100, 1e-3f);
  EXPECT_NEAR(t.norm_of(grad), 1e-4, 1e-9);
  for (float bad : {std::nanf(""), kInf, -kInf, 1e20f})
    for (size_t at : {size_t{0}, size_t{50}, size_t{99}}) {
      auto poisoned = grad;
      poisoned[at] = bad;
      EXPECT_FALSE(std::isfinite(t.norm_of(poisoned))) << bad << " at " << at;
    }
  // Each block is finite, their sum is beyond float32.
  EXPECT_EQ(t.norm_of(std::vector<float>(1 << 20, 5e16f)), kInf);
}

}  // namespace
}  // namespace chiron
