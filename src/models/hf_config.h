#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_file.h"

/// Reading a Hugging Face config.json, beyond what JsonObject does.
namespace chiron::hf {

/// An option of the model and the key that stands for it. Several rows of one option are its spellings, the usual one
/// first.
struct Key {
  std::string_view option, key;
};

/// Whether the file has a key, or "object.key".
inline bool has(const JsonObject& json, std::string_view key) {
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return json.has(key);
  return json.has(key.substr(0, dot)) && json.object(key.substr(0, dot)).has(key.substr(dot + 1));
}

/// How the file spells an option; the usual spelling if it does not name it, empty if there is none.
inline std::string_view spelling(const JsonObject& json, std::span<const Key> keys, std::string_view option) {
  std::string_view usual;
  for (const Key& k : keys) {
    if (k.option != option) continue;
    if (has(json, k.key)) return k.key;
    if (usual.empty()) usual = k.key;
  }
  return usual;
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
