#include "train/export.h"

#include <nlohmann/json.hpp>

#include "train/hf_model.h"
#include "train/weights.h"

namespace chiron {

void export_model(const SavedModel& m, const std::string& to) {
  const ModelConfig& config = m.model->config();
  if (config.sliding_window > 0)
    throw ConfigError("{}: no Hugging Face architecture of this family has a sliding window (model.sliding_window: {})",
                      m.dir, config.sliding_window);
  nlohmann::json json = m.model->hf_config(), generation = nlohmann::json::object();
  json["torch_dtype"] = "float32";
  HfWriteOptions options;
  if (m.tokenizer) {
    options.extra["tokenizer.json"] = m.tokenizer->json();
    if (auto end = m.tokenizer->end_of_text()) {
      json["bos_token_id"] = json["eos_token_id"] = *end;
      generation["bos_token_id"] = generation["eos_token_id"] = *end;
    }
  }
  write_hf_folder(to, json, generation, weight_parts(*m.params, Which::mine), options);
}

}  // namespace chiron
