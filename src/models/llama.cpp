// Llama 2 and 3 (Touvron et al., "Llama 2", 2023; "The Llama 3 Herd of Models", 2024): RMSNorm before each branch,
// rotary positions, grouped kv heads, SwiGLU; biases where the file has them. Legend: T tokens, C width, F hidden
// width, H heads, K kv heads, D head size, V vocabulary.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families.h"
#include "models/hf_config.h"
#include "nn/attention.h"
#include "nn/norm.h"
#include "nn/residual_linear.h"
#include "ops/swiglu/swiglu.h"

namespace chiron {
namespace {

/// Places in a unit that draw random numbers.
enum RandomOp : uint32_t { kEmbeddingDraw, kAttentionDraw, kAttentionOutDraw, kMlpOutDraw };

struct Block {
  using Norm = RmsNorm;
  Norm n1, n2;
  Linear wqkv{.split = Split::column}, wgu{.split = Split::column};
  ResidualLinear wo{{.split = Split::row}, {}}, wd{{.split = Split::row}, {}};
  Attention attn;
  Rope rope;

  enum SlotId { kH1, kQkv, kAtt, kX2, kH2, kGu, kAct };

  // The equations: each slot from earlier ones.
  Slot& h1(Ctx& c, Saved& s) const {
    return c.memo(s, kH1, [&](Slot& y) { n1.forward(c, y, s.x); });
  }
  Slot& qkv(Ctx& c, Saved& s) const {
    return c.memo(s, kQkv, [&](Slot& y) {
      wqkv.forward(c, y.value, h1(c, s).value);
      rotate(c, y.value, *s.batch, false);
    });
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
  Slot& gu(Ctx& c, Saved& s) const {
    return c.memo(s, kGu, [&](Slot& y) { wgu.forward(c, y.value, h2(c, s).value); });
  }
  Slot& act(Ctx& c, Saved& s) const {
    return c.memo(s, kAct, [&](Slot& y) { swiglu(c.s, y.value, gu(c, s).value); });
  }

  void forward(Ctx& c, Tensor y, Saved& s) const {
    View a = act(c, s).value, x = x2(c, s).value;
    wd.forward(c, y, a, x, *s.batch);
  }

  // Read upwards: d is dL/dy on entry, dL/dx2 in the middle, dL/dx at the end.
  void backward(Ctx& c, Tensor d, Saved& s) const {
    {
      Scope half(c.temp);
      Slot& a = act(c, s);
      Tensor dact = wd.backward(c, d, a.value, *s.batch);
      Slot& g = gu(c, s);
      Tensor dgu = c.scratch(g.value.shape);
      swiglu_backward(c.s, dgu, dact, g.value);
      Slot& h = h2(c, s);
      Tensor dh2 = wgu.backward(c, dgu, h.value);
      Slot& x = x2(c, s);
      n2.backward(c, d, dh2, x.value, h);
    }
    {
      Scope half(c.temp);
      Slot& a = att(c, s);
      Tensor datt = wo.backward(c, d, a.value, *s.batch);
      Slot& q = qkv(c, s);
      Tensor dqkv = attn.backward(c, datt, q.value, a, *s.batch);
      rotate(c, dqkv, *s.batch, true);
      Slot& h = h1(c, s);
      Tensor dh1 = wqkv.backward(c, dqkv, h.value);
      n1.backward(c, d, dh1, s.x, h);
    }
  }

  void rotate(Ctx& c, Tensor qkv, const Batch& b, bool inverse) const {
    rope.rotate(c, qkv, attn.heads, attn.kv_heads, attn.head_dim, b, inverse);
  }
};

class Llama final : public Decoder<Block> {
 public:
  explicit Llama(const ModelSetup& setup) : Decoder(setup) {
    const ModelConfig& m = config();
    const int64_t C = m.d_model, F = m.d_ff, D = m.head_dim, H = m.num_heads, K = m.num_kv_heads;
    make_token_table("model.embed_tokens.weight");
    embedding_.drop = {static_cast<float>(m.embedding_dropout), kEmbeddingDraw};
    const Param inv_freq = rotary_table();

    // The 2 L branches add up in the residual stream: their last layers start smaller by sqrt(2 L).
    const double out_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.num_layers));
    for (Unit u = 1; u <= m.num_layers; ++u) {
      const std::string layer = fmt::format("model.layers.{}.", u - 1), self = layer + "self_attn.",
                        mlp = layer + "mlp.";
      Block b;
      b.n1 = norm(u, layer + "input_layernorm.weight");
      auto kv = [&](const char* name) { return Piece{.name = self + name, .rows = K * D, .holders = kv_holders()}; };
      linear(b.wqkv, u, {{self + "q_proj", H * D}, kv("k_proj"), kv("v_proj")}, C, m.init_std, m.attention_bias);
      linear(b.wo.linear, u, {{self + "o_proj", C}}, H * D, out_std, m.attention_bias);
      b.n2 = norm(u, layer + "post_attention_layernorm.weight");
      linear(b.wgu, u, {{mlp + "gate_proj", F}, {mlp + "up_proj", F}}, C, m.init_std, m.mlp_bias);
      linear(b.wd.linear, u, {{mlp + "down_proj", C}}, F, out_std, m.mlp_bias);
      b.attn = {.heads = H / setup.tp,
                .kv_heads = std::max<int64_t>(1, K / setup.tp),
                .head_dim = D,
                .window = m.sliding_window,
                .dropout = static_cast<float>(m.attention_dropout),
                .random_op = kAttentionDraw};
      b.rope.inv_freq = inv_freq;
      b.wo.drop = {static_cast<float>(m.residual_dropout), kAttentionOutDraw};
      b.wd.drop = {static_cast<float>(m.residual_dropout), kMlpOutDraw};
      blocks_.push_back(b);
    }
    head_.norm = norm(head(), "model.norm.weight");
    make_head_weight("lm_head.weight");
    const Attention& a = blocks_.front().attn;
    block_slots_ = {{"h1", C, RmsNorm::kStatCols},       {"qkv", a.qkv_width(), 0, true},
                    {"att", a.q_width(), a.heads, true}, {"x2", C},
                    {"h2", C, RmsNorm::kStatCols},       {"gu", 2 * F / setup.tp, 0, true},
                    {"act", F / setup.tp, 0, true}};
  }

  nlohmann::json hf_config() const override;

  bool is_buffer(std::string_view name) const override { return name.ends_with(".rotary_emb.inv_freq"); }

 private:
  RmsNorm norm(Unit u, const std::string& name) {
    return {vector(u, {{name, config().d_model}}, Init::ones), static_cast<float>(config().norm_eps)};
  }

  void linear(Linear& l, Unit u, std::vector<Piece> outputs, int64_t in, double std, bool bias) {
    std::vector<Piece> weights = outputs, biases = outputs;
    for (Piece& p : weights) p.name += ".weight";
    for (Piece& p : biases) p.name += ".bias";
    l.w = matrix(u, weights, in, std, l.split);
    if (bias) l.b = vector(u, biases, Init::zeros, l.split);
  }

  Param rotary_table() {
    const RopeConfig& r = config().rope;
    RopeScaling scaling;
    scaling.type = r.scaling == RopeType::linear   ? RopeScaling::linear
                   : r.scaling == RopeType::llama3 ? RopeScaling::llama3
                                                   : RopeScaling::none;
    scaling.factor = static_cast<float>(r.factor);
    scaling.low_freq_factor = static_cast<float>(r.low_freq_factor);
    scaling.high_freq_factor = static_cast<float>(r.high_freq_factor);
    scaling.original_max_seq_len = r.original_max_seq_len;
    ParamSpec spec;
    spec.shape = {config().head_dim / 2};
    spec.unit = kEveryUnit;
    spec.trainable = false;
    spec.init = {Init::table, 0, std::vector<float>(static_cast<size_t>(config().head_dim / 2))};
    rope_frequencies({reinterpret_cast<uintptr_t>(spec.init.values.data()), DType::f32, spec.shape},
                     static_cast<float>(r.theta), scaling);
    return add(std::move(spec));
  }
};

/// Not "sliding_window", which LlamaForCausalLM ignores.
constexpr const char* kSlidingWindow = "chiron_sliding_window";

nlohmann::json Llama::hf_config() const {
  const ModelConfig& m = config();
  nlohmann::json json = {{"architectures", {"LlamaForCausalLM"}},
                         {"model_type", "llama"},
                         {"vocab_size", m.vocab_size},
                         {"hidden_size", m.d_model},
                         {"intermediate_size", m.d_ff},
                         {"num_hidden_layers", m.num_layers},
                         {"num_attention_heads", m.num_heads},
                         {"num_key_value_heads", m.num_kv_heads},
                         {"head_dim", m.head_dim},
                         {"hidden_act", "silu"},
                         {"max_position_embeddings", m.max_seq_len},
                         {"initializer_range", m.init_std},
                         {"rms_norm_eps", m.norm_eps},
                         {"tie_word_embeddings", m.tie_embeddings},
                         {"attention_bias", m.attention_bias},
                         {"mlp_bias", m.mlp_bias},
                         {"attention_dropout", m.attention_dropout},
                         {"rope_theta", m.rope.theta}};
  if (m.sliding_window > 0) json[kSlidingWindow] = m.sliding_window;
  if (m.rope.scaling == RopeType::linear) {
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", m.rope.factor}};
  } else if (m.rope.scaling == RopeType::llama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", m.rope.factor},
                            {"low_freq_factor", m.rope.low_freq_factor},
                            {"high_freq_factor", m.rope.high_freq_factor},
                            {"original_max_position_embeddings", m.rope.original_max_seq_len}};
  } else {
    json["rope_scaling"] = nullptr;
  }
  return json;
}

/// Heads that turn in part only are refused.
void require_whole_rotation(const JsonObject& json) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (const double share = json.number(kKey, 1); share != 1) hf::refuse(json, kKey, fmt::format("{}", share), "1");
}

void fill_defaults(ModelConfig& c) {
  if (c.d_ff == 0) c.d_ff = (8 * c.d_model + 191) / 192 * 64;  // 8/3 d_model
  if (c.activation == MlpActivation::family) c.activation = MlpActivation::silu;
}

void check(const ModelConfig& c) {
  if (c.head_dim % 2 != 0)
    throw ConfigError(
        "model.head_dim is {} (model.d_model / model.num_heads unless given): rotary embedding turns pairs, "
        "so it must be even; choose another model.num_heads or give model.head_dim",
        c.head_dim);
  if (c.activation != MlpActivation::silu)
    throw ConfigError("model.activation is {}: llama takes silu; the GELUs belong to gpt2",
                      names_of(c.activation)[static_cast<size_t>(c.activation)]);
  const RopeConfig& r = c.rope;
  if (r.scaling == RopeType::none && r.factor != 1)
    throw ConfigError(
        "model.rope.factor is {}, but model.rope.scaling: default stretches nothing; take factor 1, or "
        "scaling linear or llama3",
        r.factor);
  if (r.scaling == RopeType::llama3 &&
      static_cast<float>(r.low_freq_factor) >= static_cast<float>(r.high_freq_factor)) {
    throw ConfigError(
        "model.rope.low_freq_factor is {} and model.rope.high_freq_factor {}: the low one must be the "
        "smaller",
        r.low_freq_factor, r.high_freq_factor);
  }
}

constexpr hf::Key kKeys[] = {{"vocab_size", "vocab_size"},
                             {"d_model", "hidden_size"},
                             {"d_ff", "intermediate_size"},
                             {"num_layers", "num_hidden_layers"},
                             {"num_heads", "num_attention_heads"},
                             {"num_kv_heads", "num_key_value_heads"},
                             {"head_dim", "head_dim"},
                             {"max_seq_len", "max_position_embeddings"},
                             {"norm_eps", "rms_norm_eps"},
                             {"init_std", "initializer_range"},
                             {"tie_embeddings", "tie_word_embeddings"},
                             {"attention_bias", "attention_bias"},
                             {"mlp_bias", "mlp_bias"},
                             {"attention_dropout", "attention_dropout"},
                             {"sliding_window", kSlidingWindow},
                             {"rope.theta", "rope_theta"},
                             {"rope.theta", "rope_parameters.rope_theta"},
                             {"rope.theta", "rope_scaling.rope_theta"},
                             {"rope.factor", "rope_scaling.factor"},
                             {"rope.factor", "rope_parameters.factor"},
                             {"rope.low_freq_factor", "rope_scaling.low_freq_factor"},
                             {"rope.low_freq_factor", "rope_parameters.low_freq_factor"},
                             {"rope.high_freq_factor", "rope_scaling.high_freq_factor"},
                             {"rope.high_freq_factor", "rope_parameters.high_freq_factor"},
                             {"rope.original_max_seq_len", "rope_scaling.original_max_position_embeddings"},
                             {"rope.original_max_seq_len", "rope_parameters.original_max_position_embeddings"}};

/// What else there may be, such as an object for each kind of layer, would be another model in silence.
void refuse_unknown(const JsonObject& rope, std::string_view name) {
  constexpr std::string_view kKnown[] = {"rope_type",       "type",
                                         "rope_theta",      "partial_rotary_factor",
                                         "factor",          "original_max_position_embeddings",
                                         "low_freq_factor", "high_freq_factor"};
  for (const std::string& key : rope.keys())
    if (rope.has(key) && std::ranges::find(kKnown, key) == std::end(kKnown))
      throw DataError("{}: {}.{} is not supported; supported: {}", rope.file(), name, key, fmt::join(kKnown, ", "));
}

RopeType read_rope_type(const JsonObject& rope, std::string_view name) {
  const std::string old = rope.text("type", "default"), type = rope.text("rope_type", old);
  if (rope.has("type") && old != type)
    throw DataError("{}: {}: type is {} and rope_type {}; leave one of them out", rope.file(), name, old, type);
  if (type == "default") return RopeType::none;
  if (type == "linear") return RopeType::linear;
  if (type == "llama3") return RopeType::llama3;
  hf::refuse(rope, "rope_type", type, "default, linear, llama3");
}

/// Both spellings: rope_theta with rope_scaling, and rope_parameters with everything.
RopeConfig read_rope(const JsonObject& json) {
  RopeConfig r;
  r.theta = json.number("rope_theta", 10000);
  require_whole_rotation(json);
  const std::string_view key = json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!json.has(key)) return r;
  if (key == "rope_parameters" && json.has("rope_scaling"))
    throw DataError("{}: rope_parameters and rope_scaling are both given; leave one of them out", json.file());
  const JsonObject rope = json.object(key);
  require_whole_rotation(rope);
  const double theta = rope.number("rope_theta", r.theta);
  if (json.has("rope_theta") && theta != r.theta)
    throw DataError("{}: rope_theta is {}, and in {} it is {}; leave one of them out", json.file(), r.theta, key,
                    theta);
  r.theta = theta;
  r.scaling = read_rope_type(rope, key);
  refuse_unknown(rope, key);
  if (r.scaling == RopeType::none) return r;
  r.factor = rope.number("factor");
  if (r.scaling == RopeType::linear) return r;
  r.low_freq_factor = rope.number("low_freq_factor");
  r.high_freq_factor = rope.number("high_freq_factor");
  r.original_max_seq_len = rope.integer("original_max_position_embeddings");
  return r;
}

ModelConfig read_config(const JsonObject& json) {
  auto key = [&](std::string_view option) { return hf::spelling(json, kKeys, option); };
  ModelConfig m;
  m.family = Family::llama;
  m.vocab_size = hf::size(json, key("vocab_size"));
  m.d_model = hf::size(json, key("d_model"));
  m.d_ff = hf::size(json, key("d_ff"));
  m.num_layers = hf::size(json, key("num_layers"));
  m.num_heads = hf::size(json, key("num_heads"));
  m.num_kv_heads = hf::size(json, key("num_kv_heads"), m.num_heads);
  m.head_dim = json.integer(key("head_dim"), 0);
  m.max_seq_len = hf::size(json, key("max_seq_len"), 2048);
  m.norm_eps = json.number(key("norm_eps"), 1e-6);
  m.init_std = json.number(key("init_std"), 0.02);
  m.tie_embeddings = json.boolean(key("tie_embeddings"), false);
  m.attention_bias = json.boolean(key("attention_bias"), false);
  m.mlp_bias = json.boolean(key("mlp_bias"), false);
  m.attention_dropout = json.number(key("attention_dropout"), 0);
  m.sliding_window = json.integer(key("sliding_window"), 0);
  m.activation = MlpActivation::silu;
  if (std::string act = json.text("hidden_act", "silu"); act != "silu") hf::refuse(json, "hidden_act", act, "silu");
  m.rope = read_rope(json);
  return m;
}

}  // namespace

const FamilyEntry& llama_family() {
  static const FamilyEntry entry{
      .family = Family::llama,
      .title = "Llama 2 and 3",
      .model_type = "llama",
      .architecture = "LlamaForCausalLM",
      .keys = kKeys,
      .fill_defaults = fill_defaults,
      .check = check,
      .read_config = read_config,
      .make = [](const ModelSetup& s) -> std::unique_ptr<Model> { return std::make_unique<Llama>(s); }};
  return entry;
}

}  // namespace chiron
