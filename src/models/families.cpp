#include "models/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/yaml.h"
#include "models/hf_config.h"

namespace chiron {
namespace {

std::array<const FamilyEntry*, 2> families() { return {&gpt2_family(), &llama_family()}; }

}  // namespace

std::unique_ptr<Model> make_model(const ModelSetup& setup) {
  for (const FamilyEntry* f : families())
    if (f->family == setup.config.family) return f->make(setup);
  throw Bug("model family {} has no entry", static_cast<int>(setup.config.family));
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
    ModelConfig m = f->read_config(json);
    try {
      // The limits are those of the options.
      Schema schema(m);
      for (const auto& option : schema.options()) option->set(parse_yaml_value(option->yaml(), json.file()));
      resolve(m);
      validate(m);
    } catch (const ConfigError& e) {
      throw DataError("{}: {}", json.file(), e.what());
    }
    return m;
  }
  throw DataError("{}: model_type \"{}\" is not supported; supported: {}", json.file(), type, fmt::join(known, ", "));
}

}  // namespace chiron
