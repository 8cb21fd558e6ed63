#pragma once

#include <string>

#include "base/error.h"

namespace chiron {

/// What f throws says; "no error" if it throws none.
template <class Kind = Error, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return dynamic_cast<const Kind*>(&e) ? e.what() : std::string("another kind of error: ") + e.what();
  }
  return "no error";
}

}  // namespace chiron
