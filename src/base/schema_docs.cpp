#include "base/schema_docs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace chiron {

namespace {

using Json = nlohmann::ordered_json;

std::string group_of(const std::string& key) {
  size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

const Schema::Group* find_group(const Schema& schema, const std::string& key) {
  for (const auto& group : schema.groups())
    if (group.key == key) return &group;
  return nullptr;
}

std::string allowed_with_unit(const Option& option) {
  return option.allowed() + (option.unit().empty() ? "" : ", in " + option.unit());
}

/// The groups of `key` that `last` was not in, outermost first.
std::vector<const Schema::Group*> entered(const Schema& schema, const std::string& last, const std::string& key) {
  std::vector<const Schema::Group*> groups;
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
    if (last.substr(0, dot + 1) != key.substr(0, dot + 1)) groups.push_back(find_group(schema, key.substr(0, dot)));
  return groups;
}

Json object(const std::string& doc) {
  return {{"type", "object"}, {"description", doc}, {"additionalProperties", false}, {"properties", Json::object()}};
}

std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

}  // namespace

std::string wrap(const std::string& text, size_t width, const std::string& indent) {
  std::istringstream words(text);
  std::string lines, line = indent, word;
  while (words >> word) {
    if (line.size() > indent.size() && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line = indent;
    }
    if (line.size() > indent.size()) line += ' ';
    line += word;
  }
  return lines + line + "\n";
}

std::string schema_text(const Schema& schema) {
  std::string text, last;
  for (size_t i = 0; i < schema.options().size(); ++i) {
    const Option& option = *schema.options()[i];
    for (const auto* group : entered(schema, last, option.key())) text += wrap(group->key + ": " + group->doc, 100, "");
    text += fmt::format("  {} = {}\n", option.key(), schema.default_of(i));
    text += wrap(option.doc(), 100, "      ");
    text += wrap(allowed_with_unit(option) + (option.may_change() ? "; may change on resume" : ""), 100, "      ");
    last = option.key();
  }
  return text;
}

std::string schema_json(const Schema& schema, const std::string& title) {
  Json root = object(title);
  root["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  root["title"] = title;
  for (size_t i = 0; i < schema.options().size(); ++i) {
    const Option& option = *schema.options()[i];
    Json* at = &root;
    size_t begin = 0;
    for (size_t dot; (dot = option.key().find('.', begin)) != std::string::npos; begin = dot + 1) {
      Json& properties = (*at)["properties"];
      std::string name = option.key().substr(begin, dot - begin);
      if (!properties.contains(name)) {
        properties[name] = object(find_group(schema, option.key().substr(0, dot))->doc);
        properties[name]["type"] = {"object", "null"};
      }
      at = &properties[name];
    }
    Json entry = Json::parse(option.json_schema());
    entry["description"] = option.doc();
    entry["x-default"] = schema.default_of(i);
    if (!option.unit().empty()) entry["x-unit"] = option.unit();
    entry["x-may-change-on-resume"] = option.may_change();
    (*at)["properties"][option.key().substr(begin)] = entry;
  }
  return root.dump(2) + "\n";
}

std::string schema_markdown(const Schema& schema) {
  std::string text, last = "\n";
  for (size_t i = 0; i < schema.options().size(); ++i) {
    const Option& option = *schema.options()[i];
    std::string group = group_of(option.key());
    if (group != last) {
      if (const auto* described = find_group(schema, group)) {
        text += fmt::format("\n## {}\n\n{}\n", group, described->doc);
      } else {
        text += fmt::format("\n## {}\n", option.key());
      }
      text += "\n| option | default | allowed | on resume | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    text += fmt::format("| `{}` | `{}` | {} | {} | {} |\n", option.key(), schema.default_of(i),
                        escaped(allowed_with_unit(option)), option.may_change() ? "may change" : "fixed",
                        escaped(option.doc()));
    last = group;
  }
  return text;
}

std::string schema_starter(const Schema& schema) {
  std::string text, last;
  for (size_t i = 0; i < schema.options().size(); ++i) {
    const Option& option = *schema.options()[i];
    std::string opened = Schema::open_groups(last, option.key());
    std::string line = opened.substr(opened.rfind('\n') + 1);
    std::string indent = line.substr(0, line.find_first_not_of(' '));
    for (const auto* group : entered(schema, last, option.key())) {
      size_t depth = static_cast<size_t>(std::count(group->key.begin(), group->key.end(), '.'));
      std::string outer(2 * depth, ' ');
      if (depth == 0 && !text.empty()) text += '\n';
      text += wrap(group->doc, 100, outer + "# ");
      text += outer + group->key.substr(group->key.rfind('.') + 1) + ":\n";
    }
    if (indent.empty()) text += "\n";
    text += wrap(option.doc() + " Allowed: " + allowed_with_unit(option) + ".", 100, indent + "# ");
    bool live = option.yaml() != schema.default_of(i);
    text += indent;
    if (!live) text += '#';
    text += line.substr(indent.size()) + option.yaml() + "\n";
    last = option.key();
  }
  return text;
}

}  // namespace chiron
