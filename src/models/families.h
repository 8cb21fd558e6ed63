#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "models/hf_config.h"
#include "models/model.h"

namespace chiron {

/// One model family: all that the program knows of it by name. What options mean and which values they may have stands
/// in models/config.cpp as far as it is the same for all families, and here as far as it is not.
struct FamilyEntry {
  Family family;
  std::string_view title;                     ///< "GPT-2", for the help
  std::string_view model_type, architecture;  ///< what its Hugging Face folders are called
  std::span<const hf::Key> keys;              ///< of config.json
  /// Puts the family's own values in the place of what stands for them: d_ff, activation, biases.
  void (*fill_defaults)(ModelConfig&);
  /// ConfigError, naming the options, for a resolved config that the family does not have. Asked before the rules of
  /// all families, so that head_dim may still be 0.
  void (*check)(const ModelConfig&);
  /// why_without_effect() of the family; absent: each option has an effect.
  std::string (*without_effect)(const ModelConfig&, std::string_view option) = nullptr;
  ModelConfig (*read_config)(const JsonObject&);
  std::unique_ptr<Model> (*make)(const ModelSetup&);
};

/// All families, in the order of `Family`.
std::span<const FamilyEntry* const> families();
const FamilyEntry& entry_of(Family family);

const FamilyEntry& gpt2_family();
const FamilyEntry& llama_family();

}  // namespace chiron
