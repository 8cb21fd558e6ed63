#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_file.h"
#include "io/tensor_files.h"

namespace chiron {

/// A model folder as Hugging Face lays it out: config.json, optionally generation_config.json, and safetensors. What
/// the keys and tensors mean is not known here.
class HfFolder {
 public:
  /// DataError: no folder, no config.json, or one of the files is broken.
  explicit HfFolder(const std::string& dir);

  const std::string& dir() const { return dir_; }
  const JsonObject& config() const { return config_; }
  /// nullptr if the folder has none.
  const JsonObject* generation_config() const { return generation_config_ ? &*generation_config_ : nullptr; }

  /// Names of all tensors, as stored, sorted.
  std::vector<std::string> names() const { return tensors_.names(); }
  /// The tensor stored as `name`, with `prefix` put in front or, if it begins with it, taken away. nullptr if there is
  /// none; DataError if two are.
  const StoredTensor* find(std::string_view name, std::string_view prefix = "") const;
  /// Fills part.data from that tensor; its shape must be part.global. Float kinds are converted.
  void read(const StatePart& part, std::string_view prefix = "", const Staging& staging = {}) const;

 private:
  std::optional<std::string> stored_name(std::string_view name, std::string_view prefix) const;

  std::string dir_;
  JsonObject config_;
  std::optional<JsonObject> generation_config_;
  TensorFiles tensors_;
};

/// What write_hf_folder puts beside the tensors, and how.
struct HfWriteOptions {
  std::optional<DType> as = {};                   ///< type of all float tensors; absent: as in memory
  int64_t max_file_bytes = 5'000'000'000;         ///< more than this is cut into several files
  std::map<std::string, std::string> extra = {};  ///< name -> text of more files, such as tokenizer.json
};

/// Writes a model folder, all or nothing: it is built beside `dir` and renamed. `dir` must not exist or be empty
/// (ConfigError). IoError otherwise.
void write_hf_folder(const std::string& dir, const nlohmann::json& config, const nlohmann::json& generation_config,
                     std::span<const StatePart> parts, const HfWriteOptions& options = {});

}  // namespace chiron
