#include "train/hf_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "train/weights.h"

namespace chiron {
namespace {

constexpr std::string_view kOptionalPrefix = "transformer.";  // GPT-2's names come with and without it
constexpr std::string_view kHead = "lm_head.weight";

std::string without_prefix(std::string_view name) {
  if (name.starts_with(kOptionalPrefix)) name.remove_prefix(kOptionalPrefix.size());
  return std::string(name);
}

bool equal(const StoredTensor& a, const StoredTensor& b) {
  if (a.type != b.type || a.shape != b.shape) return false;
  constexpr int64_t kBlock = 1 << 18;
  std::vector<char> of_a(kBlock), of_b(kBlock);
  for (int64_t at = 0; at < a.bytes; at += kBlock) {
    const int64_t n = std::min(kBlock, a.bytes - at);
    a.read(at, of_a.data(), n);
    b.read(at, of_b.data(), n);
    if (of_a != of_b) return false;
  }
  return true;
}

}  // namespace

ModelConfig hf_model_config(const HfFolder& folder, std::vector<std::string>& remarks) {
  ModelConfig config = config_from_hf(folder.config());
  const StoredTensor* head = folder.find(kHead);
  if (!head) {
    if (!config.tie_embeddings)
      remarks.push_back(
          fmt::format("{}: tie_word_embeddings is false, but no {} is stored: the head is tied to the "
                      "embedding",
                      folder.dir(), kHead));
    config.tie_embeddings = true;
  } else if (config.tie_embeddings) {
    const auto model = make_model({.config = config});
    const StoredTensor* table = folder.find(model->params().front().pieces.front().name, kOptionalPrefix);
    if (table && !equal(*table, *head)) {
      remarks.push_back(
          fmt::format("{}: tie_word_embeddings is true, but the stored {} differs from the embedding: "
                      "both are kept",
                      folder.dir(), kHead));
      config.tie_embeddings = false;
    }
  }
  return config;
}

void load_hf_weights(Stream& s, const Model& model, ParamStore& params, const HfFolder& folder) {
  const std::vector<StatePart> parts = weight_parts(params);
  std::set<std::string> wanted;
  for (const StatePart& part : parts) wanted.insert(without_prefix(part.name));
  std::vector<std::string> missing, unexpected;
  for (const StatePart& part : parts)
    if (!folder.find(part.name, kOptionalPrefix)) missing.push_back(part.name);
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());  // pieces of one tensor
  for (const std::string& name : folder.names()) {
    // Some writers store a tied head a second time.
    const bool head_again = name == kHead && model.config().tie_embeddings;
    if (!wanted.contains(without_prefix(name)) && !model.is_buffer(name) && !head_again) unexpected.push_back(name);
  }
  if (!missing.empty()) throw DataError("{} lacks tensors of its model: {}", folder.dir(), listed(missing));
  if (!unexpected.empty())
    throw DataError("{} has tensors that its model has no place for: {}", folder.dir(), listed(unexpected));
  load_constants(s, params);
  const Staging staging(s);
  for (const StatePart& part : parts) folder.read(part, kOptionalPrefix, staging);
  params.refresh(s);
}

}  // namespace chiron
