#include "train/plan.h"

#include <gmock/gmock.h>

#include <chrono>
#include <map>

#include "train/setup.h"

namespace chiron {
namespace {

using testing::HasSubstr;

Options gpt2(int64_t layers, int64_t width, int64_t heads) {
  Options o;
  o.model = {.family = Family::gpt2, .num_layers = layers, .d_model = width, .num_heads = heads, .vocab_size = 50257};
  o.model.max_seq_len = 1024;
  resolve(o.model);
  o.training.seq_len = 256;
  return o;
}

Options llama(int64_t layers, int64_t width, int64_t heads, int64_t kv_heads, int64_t hidden, int64_t vocab,
              bool tied) {
  Options o;
  o.model = {.family = Family::llama, .num_layers = layers, .d_model = width, .num_heads = heads, .vocab_size = vocab};
  o.model.num_kv_heads = kv_heads;
  o.model.d_ff = hidden;
  o.model.tie_embeddings = tied;
  o.model.max_seq_len = 2048;
  resolve(o.model);
  o.training.seq_len = 256;
  return o;
}

Plan plan_of(const Options& o) { return make_plan(o, *make_model(model_setup(o, 0))); }

TEST(Plan, CountsTheParametersOfKnownModels) {
  EXPECT_EQ(plan_of(gpt2(12, 768, 12)).parameters, 124'439'808);
  EXPECT_EQ(plan_of(gpt2(24, 1024, 16)).parameters, 354'823'168);
  EXPECT_EQ(plan_of(gpt2(36, 1280, 20)).parameters, 774'030'080);
  EXPECT_EQ(plan_of(gpt2(48, 1600, 25)).parameters, 1'557'611'200);
  EXPECT_EQ(plan_of(llama(16, 2048, 32, 8, 8192, 128256, true)).parameters, 1'235'814'400);
  EXPECT_EQ(plan_of(llama(32, 4096, 32, 32, 11008, 32000, false)).parameters, 6'738'415'616);
  EXPECT_EQ(plan_of(llama(32, 4096, 32, 8, 14336, 128256, false)).parameters, 8'030'261'248);
}

/// A small model whose counts are easy: B sequences of T tokens.
struct Small {
  static constexpr int64_t L = 3, C = 64, H = 4, F = 256, V = 128, B = 2, T = 32;
  /// Of matrices that are multiplied with: the head's is, the embedding's lookup is none.
  static constexpr int64_t kMatrices = L * (4 * C * C + 2 * C * F) + V * C;
  static Options options(Activations::Kind kind) {
    Options o = gpt2(L, C, H);
    o.model.vocab_size = V;
    o.model.max_seq_len = T;
    o.training.batch_size = B;
    o.training.seq_len = T;
    o.activations.kind = kind;
    return o;
  }
};

std::map<std::string, double> flops_by_op(const Plan& plan) {
  std::map<std::string, double> sums;
  for (const PlannedOp& op : plan.ops) sums[op.name] += op.flops;
  return sums;
}

TEST(Plan, FlopsAreThoseOfTheFormulas) {
  constexpr double tokens = Small::B * Small::T, pairs = Small::B * Small::T * (Small::T + 1) / 2.0;
  const Plan plan = plan_of(Small::options(Activations::Kind::keep_all));
  auto flops = flops_by_op(plan);
  EXPECT_EQ(flops["linear"], 2.0 * Small::kMatrices * tokens);
  EXPECT_EQ(flops["linear_backward_input"], 2.0 * Small::kMatrices * tokens);
  EXPECT_EQ(flops["linear_backward_weight"], 2.0 * Small::kMatrices * tokens);
  // Two products forward, five backward (the scores once more), over the pairs that causality leaves.
  EXPECT_EQ(flops["attention"], 4.0 * Small::L * Small::C * pairs);
  EXPECT_EQ(flops["attention_backward"], 10.0 * Small::L * Small::C * pairs);
  double sum = 0;
  for (const auto& [name, n] : flops) sum += n;
  EXPECT_DOUBLE_EQ(plan.flops_per_token * static_cast<double>(plan.tokens_per_step), sum);
  EXPECT_EQ(plan.tokens_per_step, Small::B * Small::T);
  EXPECT_EQ(plan.model_flops_per_token,
            6.0 * static_cast<double>(plan.parameters) + 12.0 * Small::L * Small::C * static_cast<double>(Small::T));
  // The two counts agree but for causality (half the pairs), backward's scores and the work on vectors.
  EXPECT_NEAR(plan.flops_per_token / plan.model_flops_per_token, 1, 0.15);
}

TEST(Plan, ForgottenActivationsCostASecondForward) {
  auto all = flops_by_op(plan_of(Small::options(Activations::Kind::keep_all)));
  auto none = flops_by_op(plan_of(Small::options(Activations::Kind::keep_none)));
  EXPECT_EQ(none["attention"], 2 * all["attention"]);
  EXPECT_EQ(none["gelu"], 2 * all["gelu"]);
  // The last product of a block and the head's are not needed again.
  constexpr double tokens = Small::B * Small::T;
  EXPECT_EQ(none["linear"], all["linear"] + 2.0 * tokens * Small::L * (4 * Small::C * Small::C + Small::C * Small::F));
  EXPECT_EQ(none["linear_backward_weight"], all["linear_backward_weight"]);
}

TEST(Plan, AccumulationMultipliesTheWorkButNotTheUpdate) {
  Options o = Small::options(Activations::Kind::keep_all);
  const Plan one = plan_of(o);
  o.training.gradient_accumulation = 4;
  const Plan four = plan_of(o);
  EXPECT_EQ(four.tokens_per_step, 4 * one.tokens_per_step);
  auto flops = flops_by_op(one);
  const double per_step = flops["adamw"] + flops["squared_norm"] + flops["step_decide"] + flops["step_begin"];
  const double step = one.flops_per_token * static_cast<double>(one.tokens_per_step);
  EXPECT_NEAR(four.flops_per_token * static_cast<double>(four.tokens_per_step), 4 * (step - per_step) + per_step,
              1e-3 * step);
  EXPECT_EQ(four.state.weights, one.state.weights);
  EXPECT_EQ(four.activations, one.activations);
  EXPECT_GT(four.batches, one.batches);
}

TEST(Plan, MemoryByClass) {
  Options o = Small::options(Activations::Kind::keep_all);
  const Plan f32 = plan_of(o);
  // Every array is aligned, no more.
  const double bytes = 4.0 * static_cast<double>(f32.parameters), slack = 256.0 * 12 * (Small::L + 1);
  EXPECT_NEAR(static_cast<double>(f32.state.weights), bytes, slack);
  EXPECT_EQ(f32.state.gradients, f32.state.weights);
  EXPECT_EQ(f32.state.optimizer, 2 * f32.state.weights);
  EXPECT_EQ(f32.logits, Small::B * Small::T * Small::V * 4);
  EXPECT_EQ(f32.total(), f32.state.total() + f32.stacks.peak() + f32.batches + f32.workspace + Plan::kProgram);
  o.training.use_amp = true;
  const Plan bf16 = plan_of(o);
  EXPECT_NEAR(static_cast<double>(bf16.state.weights), 1.5 * bytes, 2 * slack);
  EXPECT_EQ(bf16.state.gradients, f32.state.gradients);
  EXPECT_NEAR(static_cast<double>(bf16.activations), 0.5 * static_cast<double>(f32.activations),
              0.05 * static_cast<double>(f32.activations));
  EXPECT_EQ(bf16.logits, f32.logits / 2);
  o.training.loss_chunk = 16;
  EXPECT_EQ(plan_of(o).logits, 16 * Small::V * 2);
}

TEST(Plan, OpsTableNamesUnitsAndWhatIsComputedAgain) {
  Options o = Small::options(Activations::Kind::keep_none);
  const auto model = make_model(model_setup(o, 0));
  const std::string table = plan_ops_table(make_plan(o, *model), o, *model);
  for (const char* line :
       {"\nembedding  forward                   embedding  ", "\nblock 3    forward  h1     forgotten layernorm  ",
        "\nblock 1    backward qkv    again     linear  ", "\nhead       forward  dx     kept      cross_entropy_",
        "\nstep                                 adamw  "})
    EXPECT_THAT(table, HasSubstr(line));
  EXPECT_EQ(table.find(" \n"), std::string::npos);
}

}  // namespace
}  // namespace chiron
