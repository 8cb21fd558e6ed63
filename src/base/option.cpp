#include "base/option.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/numbers.h"
#include "base/spelling.h"

namespace chiron {

using Json = nlohmann::ordered_json;

void Option::set(const YamlNode& from) {
  read(from);
  place_ = from.place;
}

void Option::set_text(const std::string& text, const std::string& place) {
  if (text_is_yaml(text))
    set(parse_yaml_value(text, place));
  else
    set({.kind = YamlNode::Kind::scalar, .text = text, .place = place});
}

void Option::fail(const YamlNode& from, const std::string& problem) const {
  throw ConfigError("{}: {}: {}; allowed: {}", from.place, key_, problem, allowed());
}

const std::string& Option::scalar(const YamlNode& from) const {
  if (!from.is(YamlNode::Kind::scalar)) fail(from, from.shown() + " stands where a single value belongs");
  if (from.quoted) fail(from, from.shown() + " is in quotes, which makes it a string: leave them out");
  return from.text;
}

void BoolOption::read(const YamlNode& from) {
  const std::string& text = scalar(from);
  if (text == "true" || text == "false") {
    value_ = text == "true";
    return;
  }
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* yes : {"true", "yes", "on", "y", "1"})
    if (lower == yes) fail(from, text + " is no truth value here: write true");
  for (const char* no : {"false", "no", "off", "n", "0"})
    if (lower == no) fail(from, text + " is no truth value here: write false");
  fail(from, from.shown() + " is no truth value");
}

std::string BoolOption::json_schema() const { return R"({"type": "boolean"})"; }

void IntOption::read(const YamlNode& from) {
  std::string problem;
  auto number = parse_int(scalar(from), problem);
  if (!number) fail(from, problem);
  if (*number < min_ || *number > max_) fail(from, from.shown() + " is out of range");
  value_ = *number;
}

std::string IntOption::yaml() const { return fmt::format("{}", value_); }

std::string IntOption::allowed() const {
  bool below = min_ != std::numeric_limits<int64_t>::min(), above = max_ != std::numeric_limits<int64_t>::max();
  if (below && above) return fmt::format("a whole number from {} to {}", min_, max_);
  if (below) return fmt::format("a whole number >= {}", min_);
  if (above) return fmt::format("a whole number <= {}", max_);
  return "a whole number";
}

std::string IntOption::json_schema() const {
  Json number{{"type", "integer"}};
  if (min_ != std::numeric_limits<int64_t>::min()) number["minimum"] = min_;
  if (max_ != std::numeric_limits<int64_t>::max()) number["maximum"] = max_;
  Json suffixed{{"type", "string"}, {"pattern", "^-?(0|[1-9][0-9]*)[kMG]$"}};
  return Json{{"anyOf", Json::array({number, suffixed})}}.dump();
}

void DoubleOption::read(const YamlNode& from) {
  std::string problem;
  auto number = parse_double(scalar(from), problem);
  if (!number) fail(from, problem);
  bool low = min_open_ ? *number <= min_ : *number < min_, high = max_open_ ? *number >= max_ : *number > max_;
  if (low || high) fail(from, from.shown() + " is out of range");
  using Float = std::numeric_limits<float>;
  const double size = std::abs(*number);
  if (size > Float::max()) fail(from, from.shown() + " is too large for float32");
  if (size > 0 && size < Float::min()) fail(from, from.shown() + " is too small for float32");
  const double rounded = static_cast<float>(*number);
  if ((min_open_ && rounded <= min_) || (max_open_ && rounded >= max_))
    fail(from, fmt::format("{} is {} in float32, which is out of range", from.shown(), rounded));
  value_ = *number;
}

std::string DoubleOption::yaml() const { return shortest(value_); }

std::string DoubleOption::allowed() const {
  std::string text = "a number";
  if (std::isfinite(min_)) text += fmt::format(" {} {}", min_open_ ? ">" : ">=", shortest(min_));
  if (std::isfinite(min_) && std::isfinite(max_)) text += " and";
  if (std::isfinite(max_)) text += fmt::format(" {} {}", max_open_ ? "<" : "<=", shortest(max_));
  return text;
}

std::string DoubleOption::json_schema() const {
  Json number{{"type", "number"}};
  if (std::isfinite(min_)) number[min_open_ ? "exclusiveMinimum" : "minimum"] = min_;
  if (std::isfinite(max_)) number[max_open_ ? "exclusiveMaximum" : "maximum"] = max_;
  // Readers of YAML 1.1 take 1e-4, without a point, for a string.
  Json text{{"type", "string"}, {"pattern", "^-?[0-9.]+(e[-+]?[0-9]+|[kMG])$"}};
  return Json{{"anyOf", Json::array({number, text})}}.dump();
}

void StringOption::read(const YamlNode& from) {
  if (from.is(YamlNode::Kind::empty)) fail(from, "the value is missing (write \"\" for an empty string)");
  if (!from.is(YamlNode::Kind::scalar)) fail(from, from.shown() + " stands where a string belongs");
  value_ = from.text;
}

std::string StringOption::json_schema() const { return R"({"type": "string"})"; }

void StringsOption::read(const YamlNode& from) {
  std::vector<std::string> list;
  if (from.is(YamlNode::Kind::scalar)) {
    if (!from.text.empty()) list = {from.text};
  } else if (from.is(YamlNode::Kind::list)) {
    for (const YamlNode& item : from.values) {
      if (!item.is(YamlNode::Kind::scalar)) fail(item, item.shown() + " stands where a string belongs");
      list.push_back(item.text);
    }
  } else {
    fail(from, from.is(YamlNode::Kind::empty) ? "the value is missing (write [] for none)"
                                              : from.shown() + " stands where a list belongs");
  }
  value_ = std::move(list);
}

std::string StringsOption::yaml() const {
  std::string text = "[";
  for (const std::string& item : value_) text += (text.size() > 1 ? ", " : "") + yaml_string(item);
  return text + "]";
}

std::string StringsOption::json_schema() const {
  return R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})";
}

void ChoiceOption::read(const YamlNode& from) {
  const std::string& text = scalar(from);
  auto at = std::find(names_.begin(), names_.end(), text);
  if (at == names_.end()) fail(from, no_choice(from.shown(), text, names_));
  value_ = static_cast<uint8_t>(at - names_.begin());
}

std::string ChoiceOption::allowed() const { return fmt::format("one of {}", fmt::join(names_, ", ")); }

std::string ChoiceOption::json_schema() const { return Json{{"enum", names_}}.dump(); }

}  // namespace chiron
