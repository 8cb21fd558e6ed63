#include "models/families.h"

#include <fmt/ranges.h>

#include <array>

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

ModelConfig config_from_hf(const nlohmann::json& json, const std::string& file) {
  HfConfig hf(json, file);
  std::string type = hf.text("model_type");
  std::vector<std::string_view> known;
  for (const FamilyEntry* f : families()) {
    known.push_back(f->model_type);
    if (type != f->model_type) continue;
    hf.require_architecture(f->architecture);
    ModelConfig m = f->read_config(hf);
    resolve(m);
    validate(m);
    return m;
  }
  throw DataError("{}: model_type \"{}\" is not supported; supported: {}", file, type, fmt::join(known, ", "));
}

}  // namespace chiron
