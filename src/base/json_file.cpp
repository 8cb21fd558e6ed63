#include "base/json_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"

namespace chiron {
namespace {

using nlohmann::json;

/// Line and column, from 1, of a byte.
std::string place(std::string_view text, size_t byte) {
  std::string_view before = text.substr(0, std::min(byte, text.size()));
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t start = before.rfind('\n');
  return fmt::format("{}:{}", line, before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1);
}

bool is_int64(const json& value) {
  bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  return value.is_number_integer() && !too_large;
}

/// As it stands in the file, cut to a length that a message can carry.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

json parse_json(std::string_view text, const std::string& file) {
  // The library would take a zero byte for the end of the text.
  if (size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw DataError("{}:{}: not valid JSON: a zero byte", file, place(text, zero));
  std::vector<std::set<std::string>> open_objects;
  auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && !open_objects.back().insert(value.get<std::string>()).second)
      throw DataError("{}: the key {} stands twice in one object", file, shown(value));
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& e) {
    // The library's message starts with its own code and position; what it says begins after "error".
    std::string what = e.what();
    size_t colon = what.find(": ");
    throw DataError("{}:{}: not valid JSON: {}", file, place(text, e.byte ? e.byte - 1 : 0),
                    colon == std::string::npos ? what : what.substr(colon + 2));
  } catch (const json::out_of_range& e) {
    throw DataError("{}: a number is out of range: {}", file, e.what());
  }
}

JsonObject JsonObject::read(const std::string& path) {
  json value = parse_json(read_file(path), path);
  if (!value.is_object()) throw DataError("{}: found {}, expected an object {{...}}", path, shown(value));
  return JsonObject(value, path);
}

JsonObject::JsonObject(const json& object, std::string file, std::string key_path)
    : json_(std::make_unique<json>(object)), file_(std::move(file)), key_path_(std::move(key_path)) {
  CHECK(json_->is_object());
}
JsonObject::~JsonObject() = default;
JsonObject::JsonObject(JsonObject&&) noexcept = default;
JsonObject& JsonObject::operator=(JsonObject&&) noexcept = default;

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> names;
  for (const auto& item : json_->items()) names.push_back(item.key());
  return names;
}

const json* JsonObject::find(std::string_view key) const {
  auto it = json_->find(std::string(key));
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonObject::has(std::string_view key) const { return find(key) != nullptr; }

const json& JsonObject::at(std::string_view key) const {
  if (const json* value = find(key)) return *value;
  throw DataError("{}: the key {}{} is missing", file_, key_path_, key);
}

void JsonObject::wrong(std::string_view key, const json& value, std::string_view allowed) const {
  throw DataError("{}: {}{} is {}, expected {}", file_, key_path_, key, shown(value), allowed);
}

int64_t JsonObject::integer(std::string_view key) const {
  const json& value = at(key);
  if (!is_int64(value)) wrong(key, value, "an integer");
  return value.get<int64_t>();
}
int64_t JsonObject::integer(std::string_view key, int64_t fallback) const { return has(key) ? integer(key) : fallback; }

double JsonObject::number(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_number()) wrong(key, value, "a number");
  return value.get<double>();
}
double JsonObject::number(std::string_view key, double fallback) const { return has(key) ? number(key) : fallback; }

bool JsonObject::boolean(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_boolean()) wrong(key, value, "true or false");
  return value.get<bool>();
}
bool JsonObject::boolean(std::string_view key, bool fallback) const { return has(key) ? boolean(key) : fallback; }

std::string JsonObject::text(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_string()) wrong(key, value, "a string");
  return value.get<std::string>();
}
std::string JsonObject::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}

JsonObject JsonObject::object(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_object()) wrong(key, value, "an object {...}");
  return JsonObject(value, file_, fmt::format("{}{}.", key_path_, key));
}

std::vector<int64_t> JsonObject::integers(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {integer(key)};
  std::vector<int64_t> all;
  for (const json& item : *value) {
    if (!is_int64(item)) wrong(key, *value, "an integer or a list of integers");
    all.push_back(item.get<int64_t>());
  }
  return all;
}

std::vector<std::string> JsonObject::texts(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {text(key)};
  std::vector<std::string> all;
  for (const json& item : *value) {
    if (!item.is_string()) wrong(key, *value, "a string or a list of strings");
    all.push_back(item.get<std::string>());
  }
  return all;
}

}  // namespace chiron
