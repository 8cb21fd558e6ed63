#pragma once

#include <string>
#include <vector>

#include "io/hf_folder.h"
#include "models/model.h"

namespace chiron {

/// The model of a Hugging Face folder. Whether the head is the embedding is decided by what is stored, not by the flag
/// alone; `remarks` gets a line for the user where the two disagree. DataError as config_from_hf().
ModelConfig hf_model_config(const HfFolder& folder, std::vector<std::string>& remarks);

/// Fills every weight, and the constants, from the folder. DataError lists tensors that the folder lacks and tensors
/// that the model has no place for.
void load_hf_weights(Stream& s, const Model& model, ParamStore& params, const HfFolder& folder);

}  // namespace chiron
