#include "base/schema.h"

#include <algorithm>

#include "base/complaints.h"
#include "base/hash.h"
#include "base/spelling.h"

namespace chiron {

namespace {

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

/// The name of `key` directly below `prefix` ("" or "a.b."), or nothing if the key lies elsewhere.
std::string_view child(std::string_view key, std::string_view prefix) {
  if (!key.starts_with(prefix)) return {};
  key.remove_prefix(prefix.size());
  return key.substr(0, key.find('.'));
}

}  // namespace

Option* Schema::find(std::string_view key) const {
  auto at = std::find_if(options_.begin(), options_.end(), [&](const auto& option) { return option->key() == key; });
  return at == options_.end() ? nullptr : at->get();
}

void Schema::read(const YamlNode& document) {
  if (document.is(YamlNode::Kind::scalar) || document.is(YamlNode::Kind::list))
    throw ConfigError("{}: a configuration is a map of options, and this is {}", document.place, document.shown());
  read_group(document, "");
}

void Schema::read_group(const YamlNode& node, const std::string& prefix) {
  Complaints complaints;
  for (size_t i = 0; i < node.keys.size(); ++i)
    complaints.collect([&] { read_entry(node.keys[i], node.values[i], prefix); });
  complaints.raise();
}

void Schema::read_entry(const YamlNode& key, const YamlNode& value, const std::string& prefix) {
  // Dots would be a second spelling, which the search for keys that stand twice does not know.
  if (key.text.find('.') != std::string::npos)
    throw ConfigError("{}: {}{}: keys of a file have no dots, which are for --set; nest it: {}: {{{}: ...}}", key.place,
                      prefix, key.text, key.text.substr(0, key.text.find('.')),
                      key.text.substr(key.text.find('.') + 1));
  std::string full = prefix + key.text;
  if (Option* option = find(full)) return option->set(value);
  bool is_group = std::any_of(groups_.begin(), groups_.end(), [&](const Group& g) { return g.key == full; });
  if (!is_group) fail_unknown(key.place, prefix, key.text);
  // A group whose options are all commented out reads as empty.
  if (!value.is(YamlNode::Kind::map) && !value.is(YamlNode::Kind::empty))
    throw ConfigError("{}: {} is a group of options, not a value ({})", value.place, full, value.shown());
  read_group(value, full + ".");
}

void Schema::set(const std::string& assignment) {
  std::string place = "--set " + assignment;
  size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ConfigError("{}: expected OPTION=VALUE, as in --set training.max_steps=100", place);
  std::string key = assignment.substr(0, equals);
  if (Option* option = find(key)) return option->set_text(assignment.substr(equals + 1), place);
  for (const Group& group : groups_)
    if (group.key == key)
      throw ConfigError("{}: {} is a group; set one option of it, as {}.NAME=VALUE", place, key, key);
  size_t dot = key.rfind('.');
  std::string prefix = dot == std::string::npos ? "" : key.substr(0, dot + 1);
  bool known = prefix.empty();
  for (const Group& group : groups_) known |= group.key + "." == prefix;
  if (known) fail_unknown(place, prefix, key.substr(prefix.size()));
  std::vector<std::string> keys;
  for (const auto& option : options_) keys.push_back(option->key());
  throw ConfigError("{}: there is no option {}{}", place, key, did_you_mean(key, keys));
}

void Schema::fail_unknown(const std::string& place, const std::string& prefix, const std::string& name) const {
  std::vector<std::string> here;
  for (const auto& option : options_) {
    std::string part(child(option->key(), prefix));
    if (!part.empty() && (here.empty() || here.back() != part)) here.push_back(part);
  }
  std::string hint = did_you_mean(name, here);
  if (hint.empty())
    for (const auto& option : options_)
      if (last_part(option->key()) == name) hint = "; did you mean " + option->key() + "?";
  std::string group = prefix.empty() ? "a configuration" : prefix.substr(0, prefix.size() - 1);
  throw ConfigError("{}: there is no option {}{}{} {} takes {}", place, prefix, name, hint.empty() ? ";" : hint, group,
                    fmt::join(here, ", "));
}

std::string Schema::open_groups(std::string_view last, std::string_view key) {
  std::string text, indent;
  bool same = true;
  for (size_t begin = 0;;) {
    size_t dot = key.find('.', begin);
    if (dot == std::string_view::npos) return text + indent + std::string(key.substr(begin)) + ": ";
    same = same && last.substr(0, dot + 1) == key.substr(0, dot + 1);
    if (!same) text += indent + std::string(key.substr(begin, dot - begin)) + ":\n";
    indent += "  ";
    begin = dot + 1;
  }
}

std::vector<Difference> differences(const Schema& before, const Schema& now) {
  CHECK(before.options().size() == now.options().size());
  std::vector<Difference> found;
  for (size_t i = 0; i < now.options().size(); ++i) {
    const Option &was = *before.options()[i], &is = *now.options()[i];
    CHECK(was.key() == is.key());
    if (!is.may_change() && was.yaml() != is.yaml()) found.push_back({is.key(), was.yaml(), is.yaml()});
  }
  return found;
}

std::string fingerprint(const Schema& schema) {
  // Sorted, so that the order in which a program lists its options has no say.
  std::vector<std::string> lines;
  for (const auto& option : schema.options())
    if (!option->may_change()) lines.push_back(option->key() + ": " + option->yaml() + "\n");
  std::sort(lines.begin(), lines.end());
  return hash128(fmt::format("{}", fmt::join(lines, ""))).hex();
}

}  // namespace chiron
