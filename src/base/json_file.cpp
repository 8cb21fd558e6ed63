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

/// A text as the parser reads it; keeps track of how far that is.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** reached;
  reference operator*() const { return *at; }
  Cursor& operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const Cursor& o) const { return at == o.at; }
};

}  // namespace

json parse_json(std::string_view text, const std::string& file) {
  constexpr int kMaxDepth = 64;
  // The library would take a zero byte for the end of the text.
  if (size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw DataError("{}:{}: not valid JSON: a zero byte", file, place(text, zero));
  const char* reached = text.data();
  auto here = [&] { return fmt::format("{}:{}", file, place(text, static_cast<size_t>(reached - text.data()) - 1)); };
  std::vector<std::set<std::string>> open_objects;
  auto watch = [&](int depth, json::parse_event_t event, json& value) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) throw DataError("{}: nested too deeply: more than {} levels", here(), kMaxDepth);
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && !open_objects.back().insert(value.get<std::string>()).second)
      throw DataError("{}: the key {} stands twice in one object", here(), shown(value));
    return true;
  };
  try {
    return json::parse(Cursor{text.data(), &reached}, Cursor{text.data() + text.size(), &reached}, watch);
  } catch (const json::parse_error& e) {
    // The library's message starts with its own code and position; what it says begins after "error".
    std::string what = e.what();
    size_t colon = what.find(": ");
    throw DataError("{}:{}: not valid JSON: {}", file, place(text, e.byte ? e.byte - 1 : 0),
                    colon == std::string::npos ? what : what.substr(colon + 2));
  } catch (const json::out_of_range& e) {
    std::string what = e.what();
    throw DataError("{}: a number is out of range: {}", here(), what.substr(std::min(what.find('\''), what.size())));
  }
}

JsonObject JsonObject::read(const std::string& path) { return JsonObject(parse_json(read_file(path), path), path); }

JsonObject::JsonObject(const json& object, std::string file, std::string key_path)
    : json_(std::make_unique<json>(object)), file_(std::move(file)), key_path_(std::move(key_path)) {
  if (json_->is_object()) return;
  if (key_path_.ends_with('.')) key_path_.pop_back();
  throw DataError("{}: {} is {}, expected an object {{...}}", file_, key_path_.empty() ? "the top level" : key_path_,
                  shown(*json_));
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

void JsonObject::wrong(std::string_view key, std::string_view allowed) const {
  throw DataError("{}: {}{} is {}, expected {}", file_, key_path_, key, shown(at(key)), allowed);
}

int64_t JsonObject::integer(std::string_view key) const {
  const json& value = at(key);
  if (!is_int64(value)) wrong(key, "an integer");
  return value.get<int64_t>();
}
int64_t JsonObject::integer(std::string_view key, int64_t fallback) const { return has(key) ? integer(key) : fallback; }

int64_t JsonObject::count(std::string_view key) const {
  const int64_t n = integer(key);
  if (n < 0) wrong(key, "a number, 0 or more");
  return n;
}

double JsonObject::number(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_number()) wrong(key, "a number");
  return value.get<double>();
}
double JsonObject::number(std::string_view key, double fallback) const { return has(key) ? number(key) : fallback; }

bool JsonObject::boolean(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_boolean()) wrong(key, "true or false");
  return value.get<bool>();
}
bool JsonObject::boolean(std::string_view key, bool fallback) const { return has(key) ? boolean(key) : fallback; }

std::string JsonObject::text(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_string()) wrong(key, "a string");
  return value.get<std::string>();
}
std::string JsonObject::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}

JsonObject JsonObject::object(std::string_view key) const {
  return JsonObject(at(key), file_, fmt::format("{}{}.", key_path_, key));
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_array()) wrong(key, "a list of objects");
  std::vector<JsonObject> all;
  for (const json& item : value) all.emplace_back(item, file_, fmt::format("{}{}[{}].", key_path_, key, all.size()));
  return all;
}

std::vector<int64_t> JsonObject::integers(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {integer(key)};
  std::vector<int64_t> all;
  for (const json& item : *value) {
    if (!is_int64(item)) wrong(key, "an integer or a list of integers");
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
    if (!item.is_string()) wrong(key, "a string or a list of strings");
    all.push_back(item.get<std::string>());
  }
  return all;
}

}  // namespace chiron
