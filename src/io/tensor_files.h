#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace chiron {

/// The tensors of a folder: model.safetensors, or else the files that model.safetensors.index.json lists.
class TensorFiles {
 public:
  /// DataError: neither is there; a file that the index names is missing or broken; a tensor that the index lists is
  /// not in its file, or one of a file is not in the index.
  explicit TensorFiles(const std::string& dir);

  /// Sorted.
  std::vector<std::string> names() const;
  /// The file that holds a tensor; nullptr if none does.
  const SafetensorsFile* file_of(std::string_view name) const;

 private:
  void read_index(const std::string& dir, const std::string& index);

  std::map<std::string, SafetensorsFile> files_;  // by file name
  std::map<std::string, const SafetensorsFile*, std::less<>> tensors_;
};

/// Writes model.safetensors into an existing folder or, if the tensors take more than `max_file_bytes`,
/// model-00001-of-0000N.safetensors and their index; a tensor larger than that has a file of its own. Every file is
/// synced, the folder is not.
void write_tensor_files(const std::string& dir, std::span<const StatePart> parts, std::optional<DType> as,
                        int64_t max_file_bytes);

/// "a, b, c and 12 more": names for a message.
std::string listed(const std::vector<std::string>& names);

}  // namespace chiron
