#pragma once

#include <cstdint>
#include <string>

#include "core/state.h"
#include "models/model.h"
#include "nn/param_store.h"

namespace chiron {

class HfFolder;

/// Draws every weight: a value depends on the seed, the name and the element's place in the named tensor alone, so that
/// no layout changes it. Renews the compute copies.
void initialize(Stream& s, ParamStore& params, uint64_t seed);

/// Constants (rotary tables) into their place; initialize() and load_hf_weights() do it too.
void load_constants(ParamStore& params);

/// Fills every weight from a Hugging Face folder. DataError lists tensors that the folder lacks and tensors that the
/// model has no place for. Returns remarks for the user (tied heads that are not, and the like).
std::vector<std::string> load_hf_weights(Stream& s, const Model& model, ParamStore& params, const HfFolder& folder);

/// Whether the folder's head is the embedding: decided by what is stored, not by the flag alone. `remarks` gets a line
/// where the two disagree.
bool head_is_tied(const HfFolder& folder, const ModelConfig& config, std::vector<std::string>& remarks);

/// The weights as parts of tensors under Hugging Face's names: what checkpoints and exports write, and loads fill.
std::vector<StatePart> weight_parts(ParamStore& params);
/// Adam's moments, as "exp_avg.<name>" and "exp_avg_sq.<name>".
std::vector<StatePart> moment_parts(ParamStore& params);
/// Gradients, as "<name>": for `check`.
std::vector<StatePart> gradient_parts(ParamStore& params);

}  // namespace chiron
