#pragma once

#include <string>
#include <type_traits>

#include "base/error.h"

namespace chiron {

/// What f throws says; "no error" if it throws none.
template <class Kind = Error, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if constexpr (!std::is_same_v<Kind, Error>)
      if (!dynamic_cast<const Kind*>(&e)) return std::string("another kind of error: ") + e.what();
    return e.what();
  }
  return "no error";
}

}  // namespace chiron
