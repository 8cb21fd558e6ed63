#include "ops/norm/norm.h"

#include <cmath>
#include <limits>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Norm, Cases) { expect_cases(norm_cases()); }

TEST(Norm, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(norm_cases()); }

struct Step {
  ThreadPool pool{1};
  Stream s{{}, pool};
  StepScalars v;

  void decide(float squared_norm, float loss_sum, int32_t tokens) {
    v.tokens = tokens;
    v.sums[0] = squared_norm;
    v.sums[1] = loss_sum;
    step_decide(s, &v);
  }
  /// The squared norm of one shard.
  float norm_of(std::vector<float> grad) {
    Tensor t{reinterpret_cast<uintptr_t>(grad.data()), DType::f32, {static_cast<int64_t>(grad.size())}};
    Shard shard{.master = t, .grad = t};
    Stack temp({}, 4096);
    squared_norm(s, &v, {&shard, 1}, temp);
    return v.sums[0];
  }
};

TEST(Norm, TokenScale) {
  Step t;
  t.v.tokens = 8;
  t.v.loss_scale = 1024;
  step_begin(t.s, &t.v);
  EXPECT_EQ(t.v.token_scale, 128);
  t.v.tokens = 0;
  step_begin(t.s, &t.v);
  EXPECT_EQ(t.v.token_scale, 0);
}

TEST(Norm, ClipsToTheLargestNorm) {
  Step t;
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

TEST(Norm, NonFiniteStepsAreNotApplied) {
  Step t;
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

TEST(Norm, OverflowAndPoisonReachTheSum) {
  Step t;
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
