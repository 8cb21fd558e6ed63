#include "models/hf_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace chiron {

using nlohmann::json;

const json* HfConfig::find(Keys keys, const char*& key) const {
  if (!json_.is_object()) throw DataError("{}: not a JSON object", file_);
  for (const char* k : keys) {
    auto at = json_.find(k);
    if (at != json_.end() && !at->is_null()) {
      key = k;
      return &*at;
    }
  }
  key = *keys.begin();
  return nullptr;
}

void HfConfig::wrong_type(const char* key, const json& value, std::string_view expected) const {
  throw DataError("{}: {} is {}, expected {}", file_, key, value.dump(), expected);
}

int64_t HfConfig::integer(Keys keys) const {
  const char* key;
  const json* at = find(keys, key);
  if (!at) throw DataError("{}: {} is missing", file_, key);
  return integer(keys, 0);
}

int64_t HfConfig::integer(Keys keys, int64_t otherwise) const {
  const char* key;
  const json* at = find(keys, key);
  if (!at) return otherwise;
  if (!at->is_number_integer()) wrong_type(key, *at, "a whole number");
  return at->get<int64_t>();
}

double HfConfig::number(const char* key) const {
  if (!find({key}, key)) throw DataError("{}: {} is missing", file_, key);
  return number(key, 0);
}

double HfConfig::number(const char* key, double otherwise) const {
  const json* at = find({key}, key);
  if (!at) return otherwise;
  if (!at->is_number()) wrong_type(key, *at, "a number");
  return at->get<double>();
}

bool HfConfig::boolean(const char* key, bool otherwise) const {
  const json* at = find({key}, key);
  if (!at) return otherwise;
  if (!at->is_boolean()) wrong_type(key, *at, "true or false");
  return at->get<bool>();
}

std::string HfConfig::text(const char* key) const {
  if (!find({key}, key)) throw DataError("{}: {} is missing", file_, key);
  return text(key, "");
}

std::string HfConfig::text(Keys keys, const std::string& otherwise) const {
  const char* key;
  const json* at = find(keys, key);
  if (!at) return otherwise;
  if (!at->is_string()) wrong_type(key, *at, "a string");
  return at->get<std::string>();
}

bool HfConfig::has(const char* key) const { return find({key}, key) != nullptr; }

const json* HfConfig::object(const char* key) const {
  const json* at = find({key}, key);
  if (at && !at->is_object()) wrong_type(key, *at, "an object");
  return at;
}

void HfConfig::require(const char* key, bool value) const {
  if (boolean(key, value) != value) refuse(key, value ? "false" : "true", value ? "true" : "false");
}

void HfConfig::require_architecture(std::string_view name) const {
  const char* key = "architectures";
  const json* at = find({key}, key);
  if (!at) return;
  if (!at->is_array()) wrong_type(key, *at, "a list");
  for (const json& a : *at)
    if (a.is_string() && a.get<std::string>() == name) return;
  refuse(key, at->dump(), name);
}

void HfConfig::refuse(const char* key, const std::string& value, std::string_view supported) const {
  throw DataError("{}: {} = {} is not supported; supported: {}", file_, key, value, supported);
}

}  // namespace chiron
