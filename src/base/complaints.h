#pragma once

#include <string>

#include "base/error.h"

namespace chiron {

/// Runs checks one after the other, and throws what they refuse together, a line each.
class Complaints {
 public:
  template <class F>
  void collect(F&& check) {
    try {
      check();
    } catch (const ConfigError& e) {
      text_ += (text_.empty() ? "" : "\n") + std::string(e.what());
    }
  }
  /// ConfigError if a check threw one.
  void raise() const {
    if (!text_.empty()) throw ConfigError("{}", text_);
  }

 private:
  std::string text_;
};

}  // namespace chiron
