#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_file.h"

/// Reading a Hugging Face config.json, beyond what JsonObject does.
namespace chiron::hf {

/// The first of several spellings of a key that the file has; the first spelling if it has none.
inline std::string_view spelling(const JsonObject& json, std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys)
    if (json.has(key)) return key;
  return *keys.begin();
}

/// DataError: the file asks for something that is not implemented.
[[noreturn]] inline void refuse(const JsonObject& json, std::string_view key, std::string_view value,
                                std::string_view supported) {
  throw DataError("{}: {} = {} is not supported; supported: {}", json.file(), key, value, supported);
}

/// A switch whose other position is not implemented; absent is `value`.
inline void require(const JsonObject& json, std::string_view key, bool value) {
  if (json.boolean(key, value) != value) refuse(json, key, value ? "false" : "true", value ? "true" : "false");
}

/// A size: at least 1. Upper limits are those of the options.
inline int64_t size(const JsonObject& json, std::string_view key, int64_t fallback = 0) {
  const int64_t n = fallback > 0 ? json.integer(key, fallback) : json.integer(key);
  if (n < 1) throw DataError("{}: {} is {}, expected a number >= 1", json.file(), key, n);
  return n;
}

}  // namespace chiron::hf
