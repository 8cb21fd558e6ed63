#pragma once

#include <cstdint>
#include <string>

#include "base/option.h"

namespace chiron {

/// By what the loss is multiplied before the backward pass, so that small gradients do not vanish in float16.
///   auto       dynamic when computing in float16, else 1
///   dynamic    a power of two that follows the gradients: ops/norm/step_rules.h
///   NUMBER     always this
struct LossScale {
  enum class Kind : uint8_t { automatic, dynamic, fixed };
  Kind kind = Kind::automatic;
  double value = 1;  ///< of `fixed`

  static LossScale from_yaml(const YamlNode& node, const Option& option);
  std::string yaml() const;
  static std::string allowed();
  static std::string json_schema();
  bool operator==(const LossScale&) const = default;
};

}  // namespace chiron
