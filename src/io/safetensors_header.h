#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace chiron {

/// One entry of a safetensors header, as it stands there.
struct HeaderEntry {
  std::string name, type;
  std::vector<uint64_t> shape, offsets;
};

struct Header {
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses the JSON header. DataError, naming `file` and the tensor, for anything but the format's grammar: wrong or
/// missing or doubled keys, wrong value types, numbers that are no u64.
Header parse_safetensors_header(std::string_view json, const std::string& file);

}  // namespace chiron
