#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "models/hf_config.h"
#include "models/model.h"

namespace chiron {

/// One model family: what its Hugging Face folders are called, and how to read and build it.
struct FamilyEntry {
  Family family;
  std::string_view model_type, architecture;
  std::span<const hf::Key> keys;  ///< of config.json
  ModelConfig (*read_config)(const JsonObject&);
  std::unique_ptr<Model> (*make)(const ModelSetup&);
};

const FamilyEntry& gpt2_family();
const FamilyEntry& llama_family();

}  // namespace chiron
