#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/option.h"

namespace chiron {

/// Which activations are kept for backward; the others are computed again. Every choice gives the same bits.
///   keep_all, keep_none   all slots of every block, or none (a block's input is always kept)
///   {every: k}            blocks 0, k, 2k, ... keep only their input, the others all
///   {keep: [slot, ...]}   every block keeps these slots, by the names that the model gives them
struct Activations {
  enum class Kind : uint8_t { keep_all, keep_none, every, keep };
  Kind kind = Kind::keep_all;
  int64_t every = 0;
  std::vector<std::string> slots{};

  static Activations from_yaml(const YamlNode& node, const Option& option);
  std::string yaml() const;
  static std::string allowed();
  static std::string json_schema();
  bool operator==(const Activations&) const = default;
};

}  // namespace chiron
