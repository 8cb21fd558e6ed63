#include "models/config.h"

#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "ops/attention/attention.h"

namespace chiron {

void RopeConfig::describe(Schema& s) {
  s.option("theta", theta, "Base of the wavelengths.").at_least(1e-3).at_most(1e30);
  s.option("scaling", scaling,
           "How wavelengths are stretched for contexts longer than the model was first trained on: not at all, all by "
           "the same factor, or only the long ones, as Llama 3.1 does.");
  s.option("factor", factor, "By how much wavelengths are stretched (linear, llama3).").at_least(1);
  s.option("low_freq_factor", low_freq_factor,
           "llama3: wavelengths above original_max_seq_len / low_freq_factor are stretched in full.")
      .above(0);
  s.option("high_freq_factor", high_freq_factor,
           "llama3: wavelengths below original_max_seq_len / high_freq_factor are left alone.")
      .above(0);
  s.option("original_max_seq_len", original_max_seq_len, "llama3: the context before stretching.")
      .at_least(1)
      .unit("tokens");
}

void ModelConfig::describe(Schema& s) {
  constexpr int64_t kMaxSize = 1 << 20;
  std::vector<std::string_view> titles;
  for (const FamilyEntry* f : families()) titles.push_back(f->title);
  s.option("family", family, fmt::format("Which architecture: {}.", fmt::join(titles, "; ")));
  s.option("num_layers", num_layers, "Number of transformer blocks.").at_least(1).at_most(10000);
  s.option("d_model", d_model, "Width of the residual stream.").at_least(1).at_most(kMaxSize);
  s.option("num_heads", num_heads, "Number of attention heads.").at_least(1).at_most(kMaxSize);
  s.option("num_kv_heads", num_kv_heads, "Number of key and value heads (llama). 0: as num_heads.")
      .at_least(0)
      .at_most(kMaxSize);
  s.option("head_dim", head_dim, "Width of a head (llama). 0: d_model / num_heads.").at_least(0).at_most(kMaxSize);
  s.option("d_ff", d_ff,
           "Inner width of the MLP. 0: 4 d_model for gpt2, 8/3 d_model rounded up to a multiple of 64 for llama.")
      .at_least(0)
      .at_most(8 * kMaxSize);
  s.option("vocab_size", vocab_size, "Number of tokens that the model knows. 0: as many as the data has.")
      .at_least(0)
      .at_most(int64_t{1} << 30);
  s.option("max_seq_len", max_seq_len, "Longest context the model can take. 0: as training.seq_len.")
      .at_least(0)
      .at_most(int64_t{1} << 30)
      .unit("tokens");
  s.option("dropout", dropout, "Probability with which a value is dropped in training.").at_least(0).below(1);
  s.option("embedding_dropout", embedding_dropout, "The same after the embedding alone. -1: as model.dropout.")
      .at_least(-1)
      .below(1);
  s.option("attention_dropout", attention_dropout, "The same for attention probabilities alone. -1: as model.dropout.")
      .at_least(-1)
      .below(1);
  s.option("residual_dropout", residual_dropout,
           "The same for what a block adds to the residual stream alone. -1: as model.dropout.")
      .at_least(-1)
      .below(1);
  s.option("tie_embeddings", tie_embeddings, "Whether the head uses the weights of the token embedding.");
  s.option("norm_eps", norm_eps, "What LayerNorm and RMSNorm add to the variance.").at_least(1e-20).below(1);
  s.option("activation", activation,
           "Non-linearity of the MLP. family: gelu_tanh for gpt2 (which also knows gelu_erf), silu for llama.");
  s.option("attention_bias", attention_bias,
           "Whether the projections of attention add a bias (llama; gpt2 always does).");
  s.option("mlp_bias", mlp_bias, "Whether the projections of the MLP add a bias (llama; gpt2 always does).");
  s.option("sliding_window", sliding_window, "A token attends to at most this many tokens, itself included. 0: to all.")
      .at_least(0)
      .unit("tokens");
  s.option("init_std", init_std, "Standard deviation of the initial weights.").above(0).at_most(10);
  s.group("rope", rope, "Rotary position embedding (llama).");
  s.option("from", from,
           "A folder in Hugging Face's layout (config.json, safetensors) whose model and weights to start from. The "
           "other options of the model then come from there; those given must agree with it. Empty: a new model.");
}

void resolve(ModelConfig& c) {
  if (c.num_kv_heads == 0) c.num_kv_heads = c.num_heads;
  if (c.head_dim == 0 && c.d_model % c.num_heads == 0) c.head_dim = c.d_model / c.num_heads;
  for (double* p : {&c.embedding_dropout, &c.attention_dropout, &c.residual_dropout})
    if (*p == ModelConfig::kAsDropout) *p = c.dropout;
  entry_of(c.family).fill_defaults(c);
}

void validate(const ModelConfig& c) {
  entry_of(c.family).check(c);
  if (c.head_dim == 0)
    throw ConfigError(
        "model.num_heads {} does not divide model.d_model {}: choose sizes that divide, or give model.head_dim",
        c.num_heads, c.d_model);
  if (c.head_dim > kMaxHeadDim)
    throw ConfigError(
        "model.head_dim is {} (model.d_model / model.num_heads unless given): at most {}; take more heads", c.head_dim,
        kMaxHeadDim);
  if (c.num_heads % c.num_kv_heads != 0)
    throw ConfigError(
        "model.num_kv_heads {} does not divide model.num_heads {}: each key and value head serves equally "
        "many heads",
        c.num_kv_heads, c.num_heads);
  struct Named {
    const char* name;
    double value;
  };
  for (auto [name, value] :
       {Named{"embedding_dropout", c.embedding_dropout}, Named{"attention_dropout", c.attention_dropout},
        Named{"residual_dropout", c.residual_dropout}}) {
    if (value < 0)
      throw ConfigError("model.{} is {}: allowed are probabilities from 0 to below 1, and -1 for that of model.dropout",
                        name, value);
  }
}

std::string why_without_effect(const ModelConfig& c, std::string_view option) {
  const FamilyEntry& f = entry_of(c.family);
  return f.without_effect ? f.without_effect(c, option) : "";
}

void validate_tensor_parallel(const ModelConfig& c, int tp) {
  auto fits = [&](int64_t n) {
    return c.num_heads % n == 0 && c.d_ff % n == 0 && (c.num_kv_heads % n == 0 || n % c.num_kv_heads == 0);
  };
  if (fits(tp)) return;
  std::vector<int64_t> would_do;
  for (int64_t n = 1; n <= c.num_heads; ++n)
    if (fits(n)) would_do.push_back(n);
  throw ConfigError(
      "tensor parallelism over {} ranks (parallel.tp): that must divide model.num_heads {} and model.d_ff {}, and "
      "divide "
      "model.num_kv_heads {} or be a multiple of it; what would do: {}",
      tp, c.num_heads, c.d_ff, c.num_kv_heads, fmt::join(would_do, ", "));
}

}  // namespace chiron
