// The numbers of a step: what they must not depend on, and what becomes of those that are none.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/norm/step_rules.h"
#include "support/tiny_run.h"

namespace chiron::tests {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// All gradients of the last step, in parameter order.
std::vector<float> gradients(TinyRun& run) {
  std::vector<float> all;
  for (const Shard& shard : run.params.shards())
    all.insert(all.end(), shard.grad.data<float>(), shard.grad.data<float>() + shard.grad.numel());
  return all;
}

std::vector<float> floats(const std::vector<char>& bytes) {
  std::vector<float> all(bytes.size() / sizeof(float));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

double largest(const std::vector<float>& a) {
  double most = 0;
  for (float x : a) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

/// The stretch of memory that holds the parameter whose first piece has this name.
Shard shard_of(TinyRun& run, const std::string& name) {
  for (const Shard& shard : run.params.owned())
    if (run.params.specs()[static_cast<size_t>(shard.param)].pieces.front().name == name) return shard;
  throw Bug("no parameter {}", name);
}

TEST(Numbers, OddSizesTrain) {
  struct Sizes {
    Family family;
    int64_t batch, length, micros, width, heads, kv, head_dim, ff, vocab;
  };
  for (const Sizes& z : std::vector<Sizes>{{Family::gpt2, 3, 37, 2, 65, 5, 0, 0, 0, 67},
                                           {Family::gpt2, 1, 1, 1, 80, 1, 0, 0, 0, 50257},
                                           {Family::gpt2, 1, 129, 1, 96, 1, 0, 0, 7, 129},
                                           {Family::llama, 2, 37, 1, 33, 3, 1, 80, 5, 127},
                                           {Family::llama, 1, 131, 1, 10, 2, 2, 96, 1, 128},
                                           {Family::llama, 5, 2, 3, 1, 7, 7, 6, 3, 9}}) {
    Options o = tiny_options(z.family);
    o.model = {.family = z.family, .num_layers = 2, .d_model = z.width, .num_heads = z.heads};
    o.model.num_kv_heads = z.kv, o.model.head_dim = z.head_dim, o.model.d_ff = z.ff, o.model.vocab_size = z.vocab;
    o.training.batch_size = z.batch, o.training.seq_len = z.length, o.training.gradient_accumulation = z.micros;
    resolve(o.model);
    validate(o.model);
    TinyRun kept(o);
    o.activations.kind = Activations::Kind::keep_none;
    TinyRun again(o, 3);
    for (int64_t n = 0; n < 3; ++n) {
      StepScalars a = kept.run(n), b = again.run(n);
      EXPECT_TRUE(std::isfinite(a.loss) && std::isfinite(a.grad_norm) && a.finite) << z.width;
      EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << z.width;
      if (n == 0) {
        EXPECT_NEAR(a.loss, std::log(static_cast<double>(z.vocab)), 0.35) << z.width;
      }
    }
    EXPECT_EQ(kept.weights(), again.weights()) << z.width;
  }
}

TEST(Numbers, TheSmallestModelsTrain) {
  for (Family family : {Family::gpt2, Family::llama})
    for (int64_t length : {8, 1}) {
      Options o = tiny_options(family);
      o.model = {.family = family, .num_layers = 1, .d_model = family == Family::gpt2 ? 1 : 2, .num_heads = 1};
      o.model.vocab_size = 256;
      o.training.batch_size = o.training.gradient_accumulation = 1;
      o.training.seq_len = length;
      resolve(o.model);
      validate(o.model);
      TinyRun run(o);
      const auto before = run.weights();
      for (int64_t n = 0; n < 3; ++n) {
        StepScalars s = run.run(n);
        EXPECT_TRUE(s.finite && std::isfinite(s.loss));
        EXPECT_EQ(s.tokens, length);
      }
      EXPECT_NE(run.weights(), before);
    }
}

class Cuts : public testing::TestWithParam<std::tuple<Family, double, bool>> {};

TEST_P(Cuts, OfTheStepIntoMicroBatchesDoNotMatter) {
  auto [family, dropout, documents] = GetParam();
  Options o = tiny_options(family);
  o.model.dropout = o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout = dropout;
  o.data.document_mask = documents;
  o.training.eps = 1e-3;  // else the first update is the sign of even the smallest gradient
  const int64_t sequences = 4;
  std::optional<StepScalars> want;
  std::vector<float> gradient, weights;
  for (int64_t batch : {4, 2, 1}) {
    o.training.batch_size = batch;
    o.training.gradient_accumulation = sequences / batch;
    TinyRun run(o);
    run.loader.fill(0, run.host);
    // Sequence 1 has three labels, sequence 2 none: any mean of means would show.
    for (int64_t row = 1; row <= 2; ++row) {
      std::vector<int32_t>& labels = run.host.micros[static_cast<size_t>(row / batch)].labels;
      for (int64_t t = row == 1 ? 3 : 0; t < o.training.seq_len; ++t)
        labels[static_cast<size_t>(row % batch * o.training.seq_len + t)] = kIgnore;
    }
    StepScalars s = run.run(run.host, 0);
    ASSERT_TRUE(s.finite);
    if (!want) {
      want = s;
      gradient = gradients(run);
      weights = floats(run.weights());
      continue;
    }
    EXPECT_EQ(s.tokens, want->tokens);
    EXPECT_NEAR(s.loss, want->loss, 1e-6);
    EXPECT_NEAR(s.grad_norm, want->grad_norm, 1e-6 * want->grad_norm);
    EXPECT_LT(distance(gradients(run), gradient), 1e-6 * largest(gradient));
    EXPECT_LT(distance(floats(run.weights()), weights), 1e-3 * 1e-3) << "of a learning rate of 1e-3";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cuts,
                         testing::Combine(testing::Values(Family::gpt2, Family::llama), testing::Values(0.0, 0.3),
                                          testing::Bool()));

TEST(Numbers, AStepWithoutLabelsChangesNothing) {
  TinyRun run(tiny_options(Family::gpt2));
  run.run(0);
  const auto before = run.weights();
  run.loader.fill(1, run.host);
  for (HostBatch& micro : run.host.micros) std::fill(micro.labels.begin(), micro.labels.end(), kIgnore);
  StepScalars s = run.run(run.host, 1);
  EXPECT_FALSE(s.finite);
  EXPECT_EQ(s.tokens, 0);
  EXPECT_EQ(s.applied, 1);
  EXPECT_TRUE(std::isfinite(s.loss) && std::isfinite(s.grad_norm)) << "no 0/0";
  EXPECT_EQ(run.weights(), before);
}

/// Moments of a run, as bytes.
std::vector<char> moments(TinyRun& run) {
  std::vector<char> bytes;
  for (const Shard& shard : run.params.shards())
    for (const Tensor& t : {shard.m, shard.v}) {
      auto p = reinterpret_cast<const char*>(t.at);
      bytes.insert(bytes.end(), p, p + t.bytes());
    }
  return bytes;
}

TEST(Numbers, APoisonedStepIsSkippedAndForgotten) {
  for (auto [family, norm, matrix] :
       {std::tuple{Family::gpt2, "transformer.ln_f.weight", "transformer.h.1.mlp.c_proj.weight"},
        std::tuple{Family::llama, "model.norm.weight", "model.layers.1.mlp.down_proj.weight"}})
    for (bool bf16 : {false, true})
      for (float poison : {kNaN, kInf, -kInf, 3e38f})
        for (const char* where : {norm, matrix}) {
          // A finite value in the middle of the model may do no harm: RMSNorm takes it out again.
          if (std::isfinite(poison) && where == matrix) continue;
          Options o = tiny_options(family);
          o.training.use_amp = bf16;
          TinyRun run(o), clean(o);
          for (int64_t n = 0; n < 2; ++n) run.run(n), clean.run(n);
          float* value = shard_of(run, where).master.data<float>() + 5;
          const float good = *value;
          auto put = [&](float x) {
            *value = x;
            run.params.refresh(run.s);
          };
          put(poison);
          const auto weights = run.weights(), state = moments(run);
          StepScalars s = run.run(2);
          EXPECT_FALSE(s.finite) << where << " " << poison << ": loss " << s.loss << ", norm " << s.grad_norm;
          EXPECT_EQ(s.applied, 2);
          EXPECT_EQ(run.weights(), weights);
          EXPECT_EQ(moments(run), state);
          // Without the poison it goes on as if the step had not been: nothing of it was left anywhere.
          put(good);
          s = run.run(3);
          StepScalars c = clean.run(3);
          EXPECT_TRUE(s.finite);
          EXPECT_EQ(std::memcmp(&s, &c, sizeof s), 0) << where << " " << poison;
          EXPECT_EQ(run.weights(), clean.weights());
          // And the guard still works.
          put(poison);
          EXPECT_FALSE(run.run(4).finite);
        }
}

TEST(Numbers, APoisonedLabelOfOneMicroBatchSkipsTheWholeStep) {
  // An infinite gradient of one micro-batch alone: a token of it has an embedding that is none.
  Options o = tiny_options(Family::llama);
  o.training.batch_size = 1;
  TinyRun run(o);
  run.loader.fill(0, run.host);
  const int32_t token = run.host.micros[1].tokens[7];
  std::replace(run.host.micros[0].tokens.begin(), run.host.micros[0].tokens.end(), token, token == 0 ? 1 : 0);
  shard_of(run, "model.embed_tokens.weight").master.data<float>()[token * o.model.d_model] = kNaN;
  const auto before = run.weights();
  EXPECT_FALSE(run.run(run.host, 0).finite);
  EXPECT_EQ(run.weights(), before);
}

TEST(Numbers, ATiedGradientIsTheSumOfBothUsesAndOneStep) {
  for (Family family : {Family::gpt2, Family::llama}) {
    const std::string name = family == Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
    Options o = tiny_options(family);
    o.model.tie_embeddings = true;
    o.training.gradient_clip_norm = 0;
    TinyRun tied(o);
    o.model.tie_embeddings = false;
    TinyRun loose(o);
    const Shard &table = shard_of(loose, name), &head = shard_of(loose, "lm_head.weight"), &both = shard_of(tied, name);
    std::memcpy(reinterpret_cast<void*>(head.master.at), reinterpret_cast<const void*>(table.master.at),
                static_cast<size_t>(head.master.bytes()));
    EXPECT_EQ(tied.params.shards().size() + 1, loose.params.shards().size());
    const auto w = floats(std::vector<char>(reinterpret_cast<const char*>(both.master.at),
                                            reinterpret_cast<const char*>(both.master.at) + both.master.bytes()));
    constexpr float kRate = 1e-2f;
    tied.run(0, kRate), loose.run(0, kRate);
    double most = 0;
    for (int64_t i = 0; i < both.grad.numel(); ++i) {
      const float sum = table.grad.data<float>()[i] + head.grad.data<float>()[i], g = both.grad.data<float>()[i];
      most = std::max(most, std::abs(static_cast<double>(g)));
      ASSERT_NEAR(g, sum, 1e-6);
      // Adam's first step: the moments are the gradient's own.
      const double decay = o.training.weight_decay * static_cast<double>(w[static_cast<size_t>(i)]);
      const double step = static_cast<double>(g) / (std::abs(static_cast<double>(g)) + o.training.eps) + decay;
      ASSERT_NEAR(both.master.data<float>()[i], static_cast<double>(w[static_cast<size_t>(i)]) - kRate * step, 1e-6);
    }
    EXPECT_GT(most, 1e-3);
  }
}

TEST(Numbers, NormWeightsMoveInBf16) {
  for (Family family : {Family::gpt2, Family::llama}) {
    Options o = tiny_options(family);
    o.model.num_layers = 1;
    o.training.use_amp = true;
    TinyRun run(o);
    for (int64_t n = 0; n < 100; ++n) ASSERT_TRUE(run.run(n, 1e-5f).finite);
    const Shard& norm = shard_of(run, family == Family::gpt2 ? "transformer.ln_f.weight" : "model.norm.weight");
    double moved = 0;
    for (int64_t i = 0; i < norm.master.numel(); ++i)
      moved += std::abs(static_cast<double>(norm.master.data<float>()[i]) - 1);
    moved /= static_cast<double>(norm.master.numel());
    // A bf16 weight near 1 has steps of 2^-7: without a wider master it would not move at all.
    EXPECT_GT(moved, 1e-4);
    EXPECT_LT(moved, 1.01e-3);
  }
}

/// float16 with a loss scale that doubles each step: it overflows, backs off, is skipped and goes on; nothing of the
/// scale shows in the numbers.
TEST(Numbers, ALossScaleAdaptsInFloat16) {
  for (Family family : {Family::gpt2, Family::llama}) {
    Options o = tiny_options(family);
    o.training.use_amp = true;
    o.training.amp_dtype = AmpDType::float16;
    Options wide = o;
    wide.training.use_amp = false;
    TinyRun run(o), reference(wide);
    EXPECT_EQ(loss_scaling(o).first, kFirstLossScale);
    EXPECT_EQ(loss_scaling(o).interval, 2000);
    EXPECT_EQ(loss_scaling(wide).first, 1);
    EXPECT_EQ(loss_scaling(wide).interval, 0);
    StepScalars scalars = run.scalars.read(run.s);
    scalars.loss_scale = kFirstLossScale;
    scalars.scale_interval = 1;
    run.scalars.write(run.s, scalars);
    int overflows = 0, applied = 0;
    float scale = kFirstLossScale;
    for (int64_t n = 0; n < 30; ++n) {
      const auto before = run.weights();
      const StepScalars s = run.run(n);
      ASSERT_TRUE(std::isfinite(s.loss));
      overflows += s.overflowed;
      applied += s.finite;
      EXPECT_EQ(s.loss_scale, s.overflowed ? scale / 2 : std::min(scale * 2, kMaxLossScale));
      scale = s.loss_scale;
      EXPECT_EQ(run.weights() == before, !s.finite);
      if (n > 0 || s.overflowed) continue;
      const StepScalars want = reference.run(n);
      EXPECT_NEAR(s.loss, want.loss, 1e-3);
      EXPECT_NEAR(s.grad_norm, want.grad_norm, 1e-2 * static_cast<double>(want.grad_norm));
    }
    EXPECT_GT(overflows, 3);
    EXPECT_GT(applied, 10);
    EXPECT_EQ(run.scalars.read(run.s).applied, applied);
  }
}

TEST(Numbers, ExemptWeightsStayWithoutGradients) {
  for (Family family : {Family::gpt2, Family::llama}) {
    Options o = tiny_options(family);
    o.model.attention_bias = o.model.mlp_bias = true;
    TinyRun run(o);
    run.run(0);
    for (const Shard& shard : run.params.shards())
      for (Tensor t : {shard.grad, shard.m, shard.v}) run.s.fill_zero(t);
    std::vector<std::vector<float>> before;
    for (const Shard& shard : run.params.shards())
      before.emplace_back(shard.master.data<float>(), shard.master.data<float>() + shard.master.numel());
    StepScalars scalars = run.scalars.read(run.s);
    scalars.finite = 1;
    scalars.learning_rate = 0.1f;
    run.scalars.write(run.s, scalars);
    adamw(run.s, run.scalars.device(), run.params.shards(), {.weight_decay = 0.5f});
    size_t exempt = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const Shard& shard = run.params.shards()[i];
      const ParamSpec& spec = run.params.specs()[static_cast<size_t>(shard.param)];
      const bool vector = spec.shape.rank == 1;
      exempt += vector;
      for (size_t e = 0; e < before[i].size(); ++e) {
        const float now = shard.master.data<float>()[e];
        ASSERT_NEAR(now, before[i][e] * (vector ? 1 : 0.95f), vector ? 0 : 1e-6f) << spec.pieces.front().name;
      }
    }
    EXPECT_GT(exempt, 10u);
  }
}

/// Two documents, A and B, in one sequence.
struct Packed {
  TinyRun run;
  static constexpr int64_t kA = 11;

  explicit Packed(Options o) : run(o) {
    HostBatch& b = run.host.micros.emplace_back();
    b.sequences = 1, b.length = o.training.seq_len;
    for (int32_t t = 0; t < b.length; ++t) {
      const bool in_b = t >= kA;
      // A has tokens below 30, B the others.
      b.tokens.push_back(in_b ? 30 + t * 7 % 30 : t * 5 % 30);
      b.positions.push_back(o.data.document_mask && in_b ? t - static_cast<int32_t>(kA) : t);
      b.starts.push_back(o.data.document_mask && in_b ? static_cast<int32_t>(kA) : 0);
      b.labels.push_back(in_b ? 30 + t * 11 % 30 : kIgnore);
      b.index.push_back(t);
    }
    if (!o.data.document_mask) b.starts.clear();
    order();
  }
  void order() {
    HostBatch& b = run.host.micros[0];
    std::vector<int32_t> counts;
    b.token_order.resize(b.tokens.size());
    b.position_order.resize(b.positions.size());
    sort_order(b.tokens, run.options.model.vocab_size, b.token_order, counts);
    sort_order(b.positions, b.length, b.position_order, counts);
  }
  void change_a() {
    for (int32_t t = 0; t < kA; ++t) run.host.micros[0].tokens[static_cast<size_t>(t)] = (t * 3 + 1) % 29;
    order();
  }
  /// Loss of the labels from `first` on, one token at a time.
  std::vector<float> losses() {
    std::vector<float> all;
    HostBatch& b = run.host.micros[0];
    const std::vector<int32_t> labels = b.labels;
    for (size_t t = kA; t < labels.size(); ++t) {
      std::fill(b.labels.begin(), b.labels.end(), kIgnore);
      b.labels[t] = labels[t];
      StepScalars zero;
      run.scalars.write(run.s, zero);
      run.step->evaluate(run.s, run.batches.upload(run.s, {&b, 1}).front());
      all.push_back(run.scalars.read(run.s).sums[1]);
    }
    b.labels = labels;
    return all;
  }
};

TEST(Packing, ADocumentDoesNotSeeAnother) {
  for (Family family : {Family::gpt2, Family::llama})
    for (int64_t window : {0, 5, 20}) {
      if (family == Family::gpt2 && window) continue;
      for (bool mask : {true, false}) {
        Options o = tiny_options(family);
        o.model.sliding_window = window;
        o.model.tie_embeddings = false;
        o.model.init_std = 0.2;
        o.training.batch_size = o.training.gradient_accumulation = 1;
        o.data.document_mask = mask;
        Packed packed(o);
        const auto before = packed.losses();
        ASSERT_EQ(before.size(), 26u);
        packed.change_a();
        const auto after = packed.losses();
        if (!mask) {
          EXPECT_NE(after, before);
          continue;
        }
        EXPECT_EQ(after, before) << "bitwise, window " << window;
        // Nor does its loss reach back: the embeddings of A's tokens get no gradient at all.
        ASSERT_TRUE(packed.run.run(packed.run.host, 0).finite);
        const Shard& table =
            shard_of(packed.run, family == Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
        for (int64_t i = 0; i < 30 * o.model.d_model; ++i) ASSERT_EQ(table.grad.data<float>()[i], 0);
        EXPECT_NE(table.grad.data<float>()[35 * o.model.d_model], 0);
      }
    }
}

}  // namespace
}  // namespace chiron::tests
