#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/schema.h"

namespace chiron {

enum class Family : uint8_t { gpt2, llama };
constexpr std::array<std::string_view, 2> names_of(Family) { return {"gpt2", "llama"}; }

/// The non-linearity of the MLP; `family` until resolve() puts the family's own in its place.
enum class MlpActivation : uint8_t { family, gelu_tanh, gelu_erf, silu };
constexpr std::array<std::string_view, 4> names_of(MlpActivation) {
  return {"family", "gelu_tanh", "gelu_erf", "silu"};
}

enum class RopeType : uint8_t { none, linear, llama3 };
constexpr std::array<std::string_view, 3> names_of(RopeType) { return {"default", "linear", "llama3"}; }

/// Rotary position embedding: angle of pair j at position p is p * theta^(-2j/head_dim), then scaled.
struct RopeConfig {
  double theta = 10000;
  RopeType scaling = RopeType::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_seq_len = 8192;

  void describe(Schema& s);
  bool operator==(const RopeConfig&) const = default;
};

/// All that defines a model. Sizes of 0 and the like stand for a default until resolve() replaces
/// them; after it, everything but vocab_size (which may wait for the data) is explicit.
struct ModelConfig {
  Family family = Family::gpt2;
  int64_t num_layers = 6, d_model = 384, num_heads = 6, num_kv_heads = 0, head_dim = 0, d_ff = 0;
  int64_t vocab_size = 0, max_seq_len = 0;
  double dropout = 0;
  double embedding_dropout = kAsDropout, attention_dropout = kAsDropout, residual_dropout = kAsDropout;
  bool tie_embeddings = true;
  double norm_eps = 1e-5;
  MlpActivation activation = MlpActivation::family;
  bool attention_bias = false, mlp_bias = false;
  int64_t sliding_window = 0;
  double init_std = 0.02;
  RopeConfig rope;
  std::string from;

  static constexpr double kAsDropout = -1;

  void describe(Schema& s);
  bool operator==(const ModelConfig&) const = default;
};

/// Replaces every default that stands for another option: num_kv_heads = num_heads, head_dim = d_model / num_heads,
/// the separate dropouts, and what is the family's own. max_seq_len and vocab_size are left to those who know the
/// training and the data.
void resolve(ModelConfig& config);

/// Throws ConfigError if options of a resolved config contradict each other or the family.
void validate(const ModelConfig& config);

/// Why an option such as "rope.theta", given with this config's value, would have no effect with its family, and what
/// to do; empty if it has one.
std::string why_without_effect(const ModelConfig& config, std::string_view option);
/// Throws ConfigError, which says how many ranks would do, if `tp` of them cannot share out heads and MLP.
void validate_tensor_parallel(const ModelConfig& config, int tp);

}  // namespace chiron
