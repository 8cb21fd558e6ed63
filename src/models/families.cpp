#include "models/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/yaml.h"

namespace chiron {
namespace {

/// The model under its key in a configuration, as messages name it.
struct Named {
  ModelConfig model;
  void describe(Schema& s) { s.group("model", model, ""); }
};

/// A message about options in the words of the file that they came from.
std::string in_words_of(const JsonObject& json, std::span<const hf::Key> keys, std::string text) {
  if (!text.starts_with(json.file())) text = json.file() + ": " + text;
  auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (const hf::Key& k : keys) {
    const std::string name = fmt::format("model.{}", k.option);
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
      const size_t end = at + name.size();
      const std::string_view now = end < text.size() && in_name(text[end]) ? name : hf::spelling(json, keys, k.option);
      text.replace(at, name.size(), now);
      at += now.size();
    }
  }
  return text;
}

}  // namespace

std::span<const FamilyEntry* const> families() {
  static const std::array entries = {&gpt2_family(), &llama_family()};
  return entries;
}

const FamilyEntry& entry_of(Family family) {
  for (const FamilyEntry* f : families())
    if (f->family == family) return *f;
  throw Bug("model family {} has no entry", static_cast<int>(family));
}

std::unique_ptr<Model> make_model(const ModelSetup& setup) {
  validate_tensor_parallel(setup.config, setup.tp);
  return entry_of(setup.config.family).make(setup);
}

ModelConfig config_from_hf(const JsonObject& json) {
  const std::string type = json.text("model_type");
  std::vector<std::string_view> known;
  for (const FamilyEntry* f : families()) {
    known.push_back(f->model_type);
    if (type != f->model_type) continue;
    const auto architectures = json.texts("architectures");
    if (!architectures.empty() && std::ranges::find(architectures, f->architecture) == architectures.end())
      hf::refuse(json, "architectures", architectures.front(), f->architecture);
    // Read on, the model would be another one, in silence.
    for (const char* key : {"quantization_config", "sliding_window"})
      if (json.has(key)) throw DataError("{}: {} is not supported; only null is, or to leave it out", json.file(), key);
    Named named{f->read_config(json)};
    try {
      // The limits are those of the options.
      Schema schema(named);
      for (const auto& option : schema.options()) option->set(parse_yaml_value(option->yaml(), json.file()));
      resolve(named.model);
      validate(named.model);
    } catch (const ConfigError& e) {
      throw DataError("{}", in_words_of(json, f->keys, e.what()));
    }
    return named.model;
  }
  throw DataError("{}: model_type \"{}\" is not supported; supported: {}", json.file(), type, fmt::join(known, ", "));
}

}  // namespace chiron
