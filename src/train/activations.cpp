#include "train/activations.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/numbers.h"
#include "base/spelling.h"

namespace chiron {

namespace {

Activations from_word(const YamlNode& node, const Option& option) {
  if (node.text == "keep_all") return {};
  if (node.text == "keep_none") return {.kind = Activations::Kind::keep_none};
  const std::vector<std::string> words{"keep_all", "keep_none"};
  option.fail(node, no_choice(node.shown(), node.text, words));
}

}  // namespace

Activations Activations::from_yaml(const YamlNode& node, const Option& option) {
  using Node = YamlNode::Kind;
  if (node.is(Node::scalar)) return from_word(node, option);
  if (!node.is(Node::map)) option.fail(node, node.shown() + " is no choice");
  if (node.keys.size() != 1) option.fail(node, fmt::format("a map with {} keys, where one belongs", node.keys.size()));
  const YamlNode &key = node.keys[0], &value = node.values[0];
  Activations read;
  if (key.text == "every") {
    read.kind = Kind::every;
    std::string problem;
    auto number = value.is(Node::scalar) && !value.quoted ? parse_int(value.text, problem) : std::nullopt;
    if (!number || *number < 1)
      option.fail(value, "every: " + (problem.empty() ? value.shown() + " is no whole number >= 1" : problem));
    read.every = *number;
  } else if (key.text == "keep") {
    read.kind = Kind::keep;
    if (!value.is(Node::list)) option.fail(value, "keep: " + value.shown() + " stands where a list of slots belongs");
    for (const YamlNode& item : value.values) {
      if (!item.is(Node::scalar)) option.fail(item, "keep: " + item.shown() + " stands where a slot's name belongs");
      if (std::find(read.slots.begin(), read.slots.end(), item.text) != read.slots.end())
        option.fail(item, "keep: " + item.text + " stands twice");
      read.slots.push_back(item.text);
    }
  } else {
    const std::vector<std::string> keys{"every", "keep"};
    option.fail(key, no_choice(key.text, key.text, keys));
  }
  return read;
}

std::string Activations::yaml() const {
  switch (kind) {
    case Kind::keep_all:
      return "keep_all";
    case Kind::keep_none:
      return "keep_none";
    case Kind::every:
      return fmt::format("{{every: {}}}", every);
    case Kind::keep:
      break;
  }
  std::vector<std::string> names;
  for (const std::string& slot : slots) names.push_back(yaml_string(slot));
  return fmt::format("{{keep: [{}]}}", fmt::join(names, ", "));
}

std::string Activations::allowed() {
  return "keep_all, keep_none, {every: K} with a whole number K >= 1, or {keep: [SLOT, ...]}";
}

std::string Activations::json_schema() {
  return R"({"anyOf": [
    {"enum": ["keep_all", "keep_none"]},
    {"type": "object", "properties": {"every": {"type": "integer", "minimum": 1}}, "required": ["every"],
     "additionalProperties": false},
    {"type": "object", "properties": {"keep": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}},
     "required": ["keep"], "additionalProperties": false}]})";
}

}  // namespace chiron
