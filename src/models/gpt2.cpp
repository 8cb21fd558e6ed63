// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): LayerNorm before each branch,
// learned positions, GELU, biases everywhere.
// Legend: T tokens, C width, F hidden width, H heads, D head size, V vocabulary.

#include <nlohmann/json.hpp>

#include <cmath>

#include "models/decoder.h"
#include "models/families.h"
#include "models/hf_config.h"
#include "nn/attention.h"
#include "nn/norm.h"
#include "nn/residual_linear.h"
#include "ops/gelu/gelu.h"

namespace chiron {
namespace {

/// Places in a unit that draw random numbers.
enum RandomOp : uint32_t { kEmbeddingDraw, kAttentionDraw, kAttentionOutDraw, kMlpOutDraw };

struct Block {
  using Norm = LayerNorm;
  Norm n1, n2;
  Linear wqkv{.split = Split::column}, wfc{.split = Split::column};
  ResidualLinear wo{{.split = Split::row}, {}}, wproj{{.split = Split::row}, {}};
  Attention attn;
  Gelu activation = Gelu::tanh;

  enum SlotId { kH1, kQkv, kAtt, kX2, kH2, kFc, kAct };

  // The equations: each slot from earlier ones.
  Slot& h1(Ctx& c, Saved& s) const {
    return c.memo(s, kH1, [&](Slot& y) { n1.forward(c, y, s.x); });
  }
  Slot& qkv(Ctx& c, Saved& s) const {
    return c.memo(s, kQkv, [&](Slot& y) { wqkv.forward(c, y.value, h1(c, s).value); });
  }
  Slot& att(Ctx& c, Saved& s) const {
    return c.memo(s, kAtt, [&](Slot& y) { attn.forward(c, y, qkv(c, s).value, *s.batch); });
  }
  Slot& x2(Ctx& c, Saved& s) const {
    return c.memo(s, kX2, [&](Slot& y) { wo.forward(c, y.value, att(c, s).value, s.x, *s.batch); });
  }
  Slot& h2(Ctx& c, Saved& s) const {
    return c.memo(s, kH2, [&](Slot& y) { n2.forward(c, y, x2(c, s).value); });
  }
  Slot& fc(Ctx& c, Saved& s) const {
    return c.memo(s, kFc, [&](Slot& y) { wfc.forward(c, y.value, h2(c, s).value); });
  }
  Slot& act(Ctx& c, Saved& s) const {
    return c.memo(s, kAct, [&](Slot& y) { gelu(c.s, y.value, fc(c, s).value, activation); });
  }

  void forward(Ctx& c, Tensor y, Saved& s) const {
    View a = act(c, s).value, x = x2(c, s).value;
    wproj.forward(c, y, a, x, *s.batch);
  }

  // Read upwards: d is dL/dy on entry, dL/dx2 in the middle, dL/dx at the end.
  void backward(Ctx& c, Tensor d, Saved& s) const {
    {
      Scope half(c.temp);
      Slot& a = act(c, s);
      Tensor dfc = wproj.backward(c, d, a.value, *s.batch);
      Slot& f = fc(c, s);
      gelu_backward(c.s, dfc, dfc, f.value, activation);
      Slot& h = h2(c, s);
      Tensor dh2 = wfc.backward(c, dfc, h.value);
      Slot& x = x2(c, s);
      n2.backward(c, d, dh2, x.value, h);
    }
    {
      Scope half(c.temp);
      Slot& a = att(c, s);
      Tensor datt = wo.backward(c, d, a.value, *s.batch);
      Slot& q = qkv(c, s);
      Tensor dqkv = attn.backward(c, datt, q.value, a, *s.batch);
      Slot& h = h1(c, s);
      Tensor dh1 = wqkv.backward(c, dqkv, h.value);
      n1.backward(c, d, dh1, s.x, h);
    }
  }
};

class Gpt2 final : public Decoder<Block> {
 public:
  explicit Gpt2(const ModelSetup& setup) : Decoder(setup) {
    const ModelConfig& m = config();
    const int64_t C = m.d_model, F = m.d_ff, H = m.num_heads / setup.tp, D = m.head_dim;
    const auto dropped = [](double p, uint32_t op) { return DropoutLayer{static_cast<float>(p), op}; };
    make_token_table("transformer.wte.weight");
    embedding_.positions = matrix(0, {{"transformer.wpe.weight", m.max_seq_len}}, C, m.init_std);
    embedding_.drop = dropped(m.embedding_dropout, kEmbeddingDraw);

    // The 2 L branches add up in the residual stream: their last layers start smaller by sqrt(2 L).
    const double out_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.num_layers));
    for (Unit u = 1; u <= m.num_layers; ++u) {
      const std::string h = fmt::format("transformer.h.{}.", u - 1);
      Block b;
      b.n1 = norm(u, h + "ln_1");
      b.wqkv.w = matrix(u, qkv_pieces(h + "attn.c_attn.weight", true), C, m.init_std, Split::column);
      b.wqkv.b = vector(u, qkv_pieces(h + "attn.c_attn.bias", false), Init::zeros, Split::column);
      linear(b.wo.linear, u, h + "attn.c_proj", C, C, out_std);
      b.n2 = norm(u, h + "ln_2");
      linear(b.wfc, u, h + "mlp.c_fc", F, C, m.init_std);
      linear(b.wproj.linear, u, h + "mlp.c_proj", C, F, out_std);
      b.attn = {.heads = H,
                .kv_heads = H,
                .head_dim = D,
                .window = m.sliding_window,
                .dropout = static_cast<float>(m.attention_dropout),
                .random_op = kAttentionDraw};
      b.wo.drop = dropped(m.residual_dropout, kAttentionOutDraw);
      b.wproj.drop = dropped(m.residual_dropout, kMlpOutDraw);
      b.activation = m.activation == MlpActivation::gelu_erf ? Gelu::erf : Gelu::tanh;
      blocks_.push_back(b);
    }
    head_.norm = norm(head(), "transformer.ln_f");
    make_head_weight("lm_head.weight");
    block_slots_ = {
        {"h1", C, LayerNorm::kStatCols}, {"qkv", 3 * H * D, 0, true},   {"att", H * D, H, true},       {"x2", C},
        {"h2", C, LayerNorm::kStatCols}, {"fc", F / setup.tp, 0, true}, {"act", F / setup.tp, 0, true}};
  }

  nlohmann::json hf_config() const override {
    const ModelConfig& m = config();
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", m.vocab_size},
            {"n_positions", m.max_seq_len},
            {"n_embd", m.d_model},
            {"n_layer", m.num_layers},
            {"n_head", m.num_heads},
            {"n_inner", m.d_ff},
            {"activation_function", m.activation == MlpActivation::gelu_erf ? "gelu" : "gelu_new"},
            {"layer_norm_epsilon", m.norm_eps},
            {"initializer_range", m.init_std},
            {"embd_pdrop", m.embedding_dropout},
            {"attn_pdrop", m.attention_dropout},
            {"resid_pdrop", m.residual_dropout},
            {"scale_attn_weights", true},
            {"tie_word_embeddings", m.tie_embeddings}};
  }

  bool is_buffer(std::string_view name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  }

 private:
  LayerNorm norm(Unit u, const std::string& name) {
    int64_t C = config().d_model;
    return {vector(u, {{name + ".weight", C}}, Init::ones), vector(u, {{name + ".bias", C}}, Init::zeros),
            static_cast<float>(config().norm_eps)};
  }

  /// c_attn holds q, k and v in one tensor; three pieces, so that heads can be cut.
  std::vector<Piece> qkv_pieces(const std::string& name, bool transposed) {
    int64_t C = config().d_model;
    return {{name, C, 0, 3 * C, transposed}, {name, C, C, 3 * C, transposed}, {name, C, 2 * C, 3 * C, transposed}};
  }

  void linear(Linear& l, Unit u, const std::string& name, int64_t out, int64_t in, double std) {
    l.w = matrix(u, {Piece{.name = name + ".weight", .rows = out, .transposed = true}}, in, std, l.split);
    l.b = vector(u, {{name + ".bias", out}}, Init::zeros, l.split);
  }
};

void fill_defaults(ModelConfig& c) {
  if (c.d_ff == 0) c.d_ff = 4 * c.d_model;
  if (c.activation == MlpActivation::family) c.activation = MlpActivation::gelu_tanh;
  c.attention_bias = c.mlp_bias = true;
}

void check(const ModelConfig& c) {
  if (c.num_kv_heads != c.num_heads)
    throw ConfigError(
        "model.num_kv_heads is {} and model.num_heads {}: gpt2 has one key and value head per head; leave "
        "num_kv_heads out, or take model.family: llama",
        c.num_kv_heads, c.num_heads);
  if (c.d_model % c.num_heads != 0)
    throw ConfigError("model.num_heads {} does not divide model.d_model {}: choose sizes that divide", c.num_heads,
                      c.d_model);
  if (c.head_dim * c.num_heads != c.d_model)
    throw ConfigError("model.head_dim is {}: with gpt2 it is model.d_model / model.num_heads = {} / {}; leave it out",
                      c.head_dim, c.d_model, c.num_heads);
  if (c.activation == MlpActivation::silu)
    throw ConfigError("model.activation is silu: gpt2 takes gelu_tanh or gelu_erf; silu belongs to llama");
  if (c.sliding_window != 0)
    throw ConfigError("model.sliding_window is {}: gpt2 has none; take 0 or model.family: llama", c.sliding_window);
  if (c.rope != RopeConfig{})
    throw ConfigError(
        "model.rope is given, but gpt2 has learned positions; leave model.rope out, or take "
        "model.family: llama");
}

/// For the rope of a dump, which names all options, that is the default's.
std::string without_effect(const ModelConfig& c, std::string_view option) {
  const bool no_bias = (option == "attention_bias" && !c.attention_bias) || (option == "mlp_bias" && !c.mlp_bias);
  if (no_bias) return "false: gpt2 always has biases; leave it out";
  if (option.starts_with("rope.") && c.rope != RopeConfig{})
    return "gpt2 has learned positions and no rotary embedding; leave it out, or take model.family: llama";
  return "";
}

constexpr hf::Key kKeys[] = {{"vocab_size", "vocab_size"},
                             {"max_seq_len", "n_positions"},
                             {"max_seq_len", "max_position_embeddings"},
                             {"d_model", "n_embd"},
                             {"d_model", "hidden_size"},
                             {"num_layers", "n_layer"},
                             {"num_layers", "num_hidden_layers"},
                             {"num_heads", "n_head"},
                             {"num_heads", "num_attention_heads"},
                             {"d_ff", "n_inner"},
                             {"norm_eps", "layer_norm_epsilon"},
                             {"init_std", "initializer_range"},
                             {"embedding_dropout", "embd_pdrop"},
                             {"attention_dropout", "attn_pdrop"},
                             {"residual_dropout", "resid_pdrop"},
                             {"tie_embeddings", "tie_word_embeddings"}};

ModelConfig read_config(const JsonObject& json) {
  auto key = [&](std::string_view option) { return hf::spelling(json, kKeys, option); };
  ModelConfig m;
  m.family = Family::gpt2;
  m.vocab_size = hf::size(json, key("vocab_size"), 50257);
  m.max_seq_len = hf::size(json, key("max_seq_len"), 1024);
  m.d_model = hf::size(json, key("d_model"), 768);
  m.num_layers = hf::size(json, key("num_layers"), 12);
  m.num_heads = hf::size(json, key("num_heads"), 12);
  if (json.has(key("d_ff"))) m.d_ff = hf::size(json, key("d_ff"));  // else 4 d_model
  m.norm_eps = json.number(key("norm_eps"), 1e-5);
  m.init_std = json.number(key("init_std"), 0.02);
  m.embedding_dropout = json.number(key("embedding_dropout"), 0.1);
  m.attention_dropout = json.number(key("attention_dropout"), 0.1);
  m.residual_dropout = json.number(key("residual_dropout"), 0.1);
  m.tie_embeddings = json.boolean(key("tie_embeddings"), true);
  std::string act = json.text("activation_function", "gelu_new");
  if (act == "gelu_new" || act == "gelu_pytorch_tanh")
    m.activation = MlpActivation::gelu_tanh;
  else if (act == "gelu")
    m.activation = MlpActivation::gelu_erf;
  else
    hf::refuse(json, "activation_function", act, "gelu_new, gelu_pytorch_tanh or gelu");
  hf::require(json, "scale_attn_weights", true);
  hf::require(json, "scale_attn_by_inverse_layer_idx", false);
  hf::require(json, "add_cross_attention", false);
  return m;
}

}  // namespace

const FamilyEntry& gpt2_family() {
  static const FamilyEntry entry{
      .family = Family::gpt2,
      .title = "GPT-2",
      .model_type = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .keys = kKeys,
      .fill_defaults = fill_defaults,
      .check = check,
      .without_effect = without_effect,
      .read_config = read_config,
      .make = [](const ModelSetup& s) -> std::unique_ptr<Model> { return std::make_unique<Gpt2>(s); }};
  return entry;
}

}  // namespace chiron
