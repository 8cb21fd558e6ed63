#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace chiron {

/// An element type of the safetensors format.
struct SafetensorsType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;  ///< absent: Chiron has no name for it
  int order;                   ///< files are written in descending order of this
};

/// nullptr for a name that the format does not know.
const SafetensorsType* safetensors_type(std::string_view name);
const SafetensorsType& safetensors_type(DType dtype);
/// All names, for messages.
std::string safetensors_type_names();

}  // namespace chiron
