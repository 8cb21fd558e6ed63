#include "ops/adamw/adamw.h"

#include <cmath>
#include <limits>

#include "ops/norm/norm.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(AdamW, Cases) { expect_cases(adamw_cases()); }

TEST(AdamW, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(adamw_cases()); }

template <class T>
Tensor tensor(std::vector<T>& v) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), {static_cast<int64_t>(v.size())}};
}

/// The state of one parameter.
struct State {
  std::vector<float> master, grad, m, v;
  std::vector<bf16> compute;

  State(size_t n, float w, float g) : master(n, w), grad(n, g), m(n), v(n), compute(n, bf16(w)) {}
  Shard shard(bool decay, bool narrow) {
    return {.param = 0,
            .master = tensor(master),
            .compute = narrow ? tensor(compute) : Tensor{},
            .grad = tensor(grad),
            .m = tensor(m),
            .v = tensor(v),
            .decay = decay};
  }
};

/// A step of the whole guard: norm, decision, update.
struct Step {
  ThreadPool pool{2};
  Stream s{{}, pool};
  StepScalars v;
  Stack temp{{}, 4096};

  Step() {
    v.learning_rate = 1e-2f;
    v.tokens = 10;
    v.sums[1] = 25;
  }
  void run(std::vector<Shard> shards) {
    squared_norm(s, &v, shards, temp);
    step_decide(s, &v);
    adamw(s, &v, shards, {});
  }
};

TEST(AdamW, ExemptParametersStayWithoutGradients) {
  State exempt(37, 1, 0), decayed(37, 1, 0);
  Step step;
  for (int i = 0; i < 10; ++i) step.run({exempt.shard(false, false), decayed.shard(true, false)});
  EXPECT_EQ(step.v.applied, 10);
  EXPECT_EQ(exempt.master, std::vector<float>(37, 1));
  for (float w : decayed.master) EXPECT_NEAR(w, std::pow(1 - 1e-3, 10), 1e-6);
}

TEST(AdamW, PoisonTouchesNothingAndTheGuardRecovers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float poison : {std::nanf(""), kInf, -kInf})
    for (bool in_loss : {false, true}) {
      State a(40, 0.5f, 0.1f), b(16384 + 5, 1, 0.2f);
      Step step;
      step.run({a.shard(true, true), b.shard(true, true)});
      State before_a = a, before_b = b;
      if (in_loss)
        step.v.sums[1] = poison;
      else
        b.grad.back() = poison;
      step.run({a.shard(true, true), b.shard(true, true)});
      EXPECT_EQ(step.v.finite, 0);
      EXPECT_EQ(step.v.applied, 1);
      for (auto [now, then] : {std::pair{&a, &before_a}, {&b, &before_b}}) {
        EXPECT_EQ(now->master, then->master);
        EXPECT_EQ(now->m, then->m);
        EXPECT_EQ(now->v, then->v);
        for (size_t i = 0; i < now->compute.size(); ++i) ASSERT_EQ(now->compute[i].bits, then->compute[i].bits);
      }
      step.v.sums[1] = 25;
      b.grad.back() = 0.2f;
      step.run({a.shard(true, true), b.shard(true, true)});
      EXPECT_EQ(step.v.applied, 2);
      EXPECT_NE(a.master, before_a.master);
      for (float w : b.master) ASSERT_TRUE(std::isfinite(w));
    }
}

/// Steps of 1e-5 are far below bf16's spacing of 2^-8 at 1; the master adds them up.
TEST(AdamW, NormWeightsMoveInBf16) {
  State norm(48, 1, 0.3f);
  Step step;
  step.v.learning_rate = 1e-5f;
  for (int i = 0; i < 100; ++i) step.run({norm.shard(false, true)});
  for (float w : norm.master) EXPECT_NEAR(w, 1 - 100 * 1e-5, 2e-5);
  EXPECT_EQ(norm.compute[0].bits, bf16(norm.master[0]).bits);
  for (int i = 0; i < 200; ++i) step.run({norm.shard(false, true)});
  EXPECT_LT(static_cast<float>(norm.compute[0]), 1);
}

TEST(AdamW, ComputeCopyIsTheRoundedMaster) {
  State state(1000, 0, 0);
  auto w = random_normal(1000, 1), g = random_normal(1000, 2);
  for (size_t i = 0; i < 1000; ++i) {
    state.master[i] = static_cast<float>(w[i]);
    state.grad[i] = static_cast<float>(g[i]);
  }
  Step step;
  step.run({state.shard(true, true)});
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(state.compute[i].bits, bf16(state.master[i]).bits) << i;
}

TEST(AdamW, RefusesStateOfAnotherSize) {
  State state(8, 1, 0);
  Step step;
  step.v.finite = 1;
  step.v.applied = 1;
  Shard shard = state.shard(false, false);
  shard.m.shape = {7};
  EXPECT_THROW(adamw(step.s, &step.v, {&shard, 1}, {}), Bug);
}

}  // namespace
}  // namespace chiron
