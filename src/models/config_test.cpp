#include "models/config.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "models/families.h"

namespace chiron {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

ModelConfig llama() {
  ModelConfig c;
  c.family = Family::llama;
  return c;
}

std::string error_of(ModelConfig c) {
  resolve(c);
  try {
    validate(c);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ModelConfig, DefaultsAreResolved) {
  ModelConfig g;
  resolve(g);
  EXPECT_EQ(g.num_kv_heads, 6);
  EXPECT_EQ(g.head_dim, 64);
  EXPECT_EQ(g.d_ff, 1536);
  EXPECT_EQ(g.activation, MlpActivation::gelu_tanh);
  EXPECT_TRUE(g.attention_bias && g.mlp_bias);
  EXPECT_EQ(g.attention_dropout, 0);
  validate(g);

  ModelConfig l = llama();
  l.dropout = 0.25;
  l.residual_dropout = 0;
  for (auto [width, inner] : {std::pair<int64_t, int64_t>{384, 1024}, {4096, 10944}, {512, 1408}}) {
    ModelConfig wide = llama();
    wide.d_model = width;
    resolve(wide);
    EXPECT_EQ(wide.d_ff, inner);
    EXPECT_GE(3 * wide.d_ff, 8 * width);
    EXPECT_LT(3 * (wide.d_ff - 64), 8 * width);
  }
  resolve(l);
  EXPECT_EQ(l.activation, MlpActivation::silu);
  EXPECT_FALSE(l.attention_bias || l.mlp_bias);
  EXPECT_EQ(l.embedding_dropout, 0.25);
  EXPECT_EQ(l.residual_dropout, 0);
  validate(l);
  ModelConfig twice = l;
  resolve(twice);
  EXPECT_EQ(twice, l);
}

TEST(Families, EachHasAnEntryOfItsOwn) {
  ASSERT_EQ(families().size(), names_of(Family{}).size());
  for (size_t i = 0; i < families().size(); ++i) {
    const auto family = static_cast<Family>(i);
    EXPECT_EQ(families()[i], &entry_of(family));
    EXPECT_EQ(families()[i]->family, family);
  }
  EXPECT_THROW(entry_of(static_cast<Family>(families().size())), Bug);
}

TEST(Families, SayWhichOptionsHaveNoEffect) {
  ModelConfig c;
  c.attention_bias = true;
  c.rope.theta = 5;
  EXPECT_EQ(why_without_effect(c, "attention_bias"), "");
  EXPECT_THAT(why_without_effect(c, "mlp_bias"), HasSubstr("gpt2 always has biases"));
  EXPECT_THAT(why_without_effect(c, "rope.factor"), HasSubstr("no rotary embedding"));
  EXPECT_EQ(why_without_effect(c, "d_model"), "");
  c.family = Family::llama;
  EXPECT_EQ(why_without_effect(c, "mlp_bias") + why_without_effect(c, "rope.factor"), "");
}

TEST(ModelConfig, ContradictionsAreNamedWithValues) {
  ModelConfig c;
  c.num_heads = 5;
  EXPECT_THAT(error_of(c), EndsWith("model.num_heads 5 does not divide model.d_model 384: choose sizes that divide"));
  c.family = Family::llama;
  EXPECT_THAT(error_of(c),
              HasSubstr("does not divide model.d_model 384: choose sizes that divide, or give model.head"));
  c = llama();
  c.num_kv_heads = 4;
  EXPECT_THAT(error_of(c), HasSubstr("model.num_kv_heads 4 does not divide model.num_heads 6"));
  c = {};
  c.num_kv_heads = 3;
  EXPECT_THAT(error_of(c), HasSubstr("model.num_kv_heads is 3 and model.num_heads 6: gpt2"));
  c = {};
  c.head_dim = 32;
  EXPECT_THAT(error_of(c), HasSubstr("model.head_dim is 32"));
  c = {};
  c.activation = MlpActivation::silu;
  EXPECT_THAT(error_of(c), HasSubstr("gelu_tanh or gelu_erf"));
  c = {};
  c.rope.theta = 5;
  EXPECT_THAT(error_of(c), HasSubstr("learned positions"));
  c = {};
  c.sliding_window = 5;
  EXPECT_THAT(error_of(c), HasSubstr("model.sliding_window is 5"));
  c = llama();
  c.activation = MlpActivation::gelu_erf;
  EXPECT_THAT(error_of(c), HasSubstr("model.activation is gelu_erf"));
  c = llama();
  c.head_dim = 7;
  EXPECT_THAT(error_of(c), HasSubstr("must be even"));
  for (int64_t width : {256 * 6, 258 * 6}) {
    c = llama();
    c.d_model = width;
    EXPECT_THAT(error_of(c), HasSubstr(width == 256 * 6 ? "no error" : "model.head_dim is 258 "));
  }
  c = llama();
  c.rope.factor = 2;
  EXPECT_THAT(error_of(c), HasSubstr("model.rope.factor is 2"));
  c.rope.scaling = RopeType::linear;
  EXPECT_EQ(error_of(c), "no error");
  c.rope.scaling = RopeType::llama3;
  c.rope.low_freq_factor = 4;
  EXPECT_THAT(error_of(c), HasSubstr("must be the smaller"));
  c = {};
  c.attention_dropout = -0.5;
  EXPECT_THAT(error_of(c), HasSubstr("model.attention_dropout is -0.5"));
}

}  // namespace
}  // namespace chiron
