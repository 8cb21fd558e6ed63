// Every activation policy gives the same bits, and each acts: it keeps the bytes it says and computes the rest again.

#include <cstring>

#include "support/tiny_run.h"
#include "train/plan.h"

namespace chiron::tests {
namespace {

std::vector<Activations> policies() {
  using Kind = Activations::Kind;
  return {{.kind = Kind::keep_all},
          {.kind = Kind::keep_none},
          {.kind = Kind::every, .every = 2},
          {.kind = Kind::keep, .slots = {"qkv", "att"}},
          {.kind = Kind::keep, .slots = {"h1", "x2", "act"}}};
}

Options options_of(Family family, double dropout, DType compute) {
  Options o = tiny_options(family);
  o.model.dropout = o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout = dropout;
  o.training.use_amp = compute == DType::bf16;
  return o;
}

class Policies : public testing::TestWithParam<std::tuple<Family, double, DType>> {};

TEST_P(Policies, GiveTheSameBits) {
  auto [family, dropout, compute] = GetParam();
  Options o = options_of(family, dropout, compute);
  TinyRun all(o);
  std::vector<StepScalars> want;
  for (int64_t n = 0; n < 3; ++n) want.push_back(all.run(n));
  const auto weights = all.weights();
  ASSERT_EQ(want.back().applied, 3);
  for (const Activations& a : policies()) {
    o.activations = a;
    TinyRun run(o);
    for (int64_t n = 0; n < 3; ++n) {
      StepScalars got = run.run(n);
      EXPECT_EQ(std::memcmp(&got, &want[static_cast<size_t>(n)], sizeof got), 0) << a.yaml() << " step " << n;
    }
    EXPECT_EQ(run.weights(), weights) << a.yaml();
    if (a.kind != Activations::Kind::keep_all) {
      EXPECT_LT(run.saved_bytes, all.saved_bytes) << a.yaml();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Policies,
                         testing::Combine(testing::Values(Family::gpt2, Family::llama), testing::Values(0.0, 0.2),
                                          testing::Values(DType::f32, DType::bf16)));

TEST(Policies, SubsetsOfSlotsGiveTheSameBits) {
  // All 128 keep and drop choices of a block.
  for (Family family : {Family::gpt2, Family::llama}) {
    Options o = tiny_options(family);
    o.model.num_layers = 1;
    o.training.gradient_accumulation = 1;
    o.training.seq_len = 9;
    TinyRun all(o);
    StepScalars want = all.run(0);
    const auto specs = all.model->slots(1);
    for (uint32_t mask = 0; mask < 1u << specs.size(); ++mask) {
      o.activations = {.kind = Activations::Kind::keep, .slots = {}};
      for (size_t i = 0; i < specs.size(); ++i)
        if (mask >> i & 1u) o.activations.slots.emplace_back(specs[i].name);
      TinyRun run(o);
      StepScalars got = run.run(0);
      ASSERT_EQ(std::memcmp(&got, &want, sizeof got), 0) << o.activations.yaml();
      ASSERT_EQ(run.weights(), all.weights()) << o.activations.yaml();
    }
  }
}

TEST(Policies, ForgottenSlotsAreComputedAgain) {
  Options o = tiny_options(Family::gpt2);
  auto model = make_model(model_setup(o, 0));
  auto again = [&](Activations a) {
    o.activations = std::move(a);
    int64_t n = 0;
    for (const PlannedOp& op : make_plan(o, *model).ops) n += op.again;
    return n;
  };
  EXPECT_EQ(again({}), 0);
  int64_t none = again({.kind = Activations::Kind::keep_none});
  EXPECT_GE(none, 3 * 7);  // seven slots of each of three blocks
  int64_t every = again({.kind = Activations::Kind::every, .every = 2});
  EXPECT_EQ(every * 3, none * 2);  // blocks 0 and 2
  EXPECT_EQ(again({.kind = Activations::Kind::keep, .slots = {"h1", "qkv", "att", "x2", "h2", "fc"}}), 3);  // act
}

TEST(Policies, UnknownSlotIsRefusedByName) {
  Options o = tiny_options(Family::gpt2);
  o.activations = {.kind = Activations::Kind::keep, .slots = {"qvk"}};
  auto model = make_model(model_setup(o, 0));
  try {
    make_policy(o.activations, *model);
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("\"qvk\""), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("qkv"), std::string::npos) << e.what();
  }
}

TEST(Policies, DeferredWeightGradientsGiveTheSameBits) {
  for (Family family : {Family::gpt2, Family::llama})
    for (auto kind : {Activations::Kind::keep_all, Activations::Kind::keep_none}) {
      Options o = tiny_options(family);
      o.activations.kind = kind;
      TinyRun now(o), later(o, 1, true);
      EXPECT_GT(later.saved_bytes, now.saved_bytes);  // copies wait on the saved stack
      for (int64_t n = 0; n < 2; ++n) {
        StepScalars a = now.run(n), b = later.run(n);
        EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
      }
      EXPECT_EQ(now.weights(), later.weights());
    }
}

TEST(Policies, ThreadsDoNotChangeTheBits) {
  Options o = options_of(Family::gpt2, 0.1, DType::f32);
  TinyRun one(o, 1), three(o, 3);
  for (int64_t n = 0; n < 2; ++n) {
    StepScalars a = one.run(n), b = three.run(n);
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
  }
  EXPECT_EQ(one.weights(), three.weights());
}

}  // namespace
}  // namespace chiron::tests
