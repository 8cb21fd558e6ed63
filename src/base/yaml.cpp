#include "base/yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/files.h"

namespace chiron {

namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxNodes = 100'000;
constexpr int kMaxDepth = 32;

/// Copies yaml-cpp's tree. Aliases are expanded, so that the limits also stop a document that grows without bound.
class Copier {
 public:
  Copier(std::string name, bool with_position) : name_(std::move(name)), with_position_(with_position) {}

  std::string place(const YAML::Mark& mark) const {
    return with_position_ ? fmt::format("{}:{}:{}", name_, mark.line + 1, mark.column + 1) : name_;
  }

  YamlNode copy(const YAML::Node& from, int depth = 0) {
    if (++count_ > kMaxNodes || depth > kMaxDepth)
      throw ConfigError("{}: nested too deeply or too large for a configuration", place(from.Mark()));
    YamlNode to;
    to.place = place(from.Mark());
    if (from.IsScalar()) {
      to.kind = YamlNode::Kind::scalar;
      to.text = from.Scalar();
      to.quoted = from.Tag() == "!";
      if (!to.quoted && from.Tag() != "?" && !from.Tag().empty())
        throw ConfigError("{}: the tag {} is not allowed here; leave it out", to.place, from.Tag());
    } else if (from.IsSequence()) {
      to.kind = YamlNode::Kind::list;
      for (const auto& item : from) to.values.push_back(copy(item, depth + 1));
    } else if (from.IsMap()) {
      to.kind = YamlNode::Kind::map;
      copy_map(from, to, depth);
    }
    return to;
  }

 private:
  void copy_map(const YAML::Node& from, YamlNode& to, int depth) {
    std::map<std::string, std::string> first;
    for (const auto& entry : from) {
      if (!entry.first.IsScalar()) throw ConfigError("{}: a key must be a plain word", place(entry.first.Mark()));
      YamlNode key = copy(entry.first, depth + 1);
      auto [known, is_new] = first.emplace(key.text, key.place);
      if (!is_new)
        throw ConfigError("{}: duplicate key {}: it stands at {} already; keep one of them", key.place, key.text,
                          known->second);
      YamlNode value = copy(entry.second, depth + 1);
      // An empty value has no position of its own that an editor could jump to.
      if (value.is(YamlNode::Kind::empty)) value.place = key.place;
      to.keys.push_back(std::move(key));
      to.values.push_back(std::move(value));
    }
  }

  std::string name_;
  bool with_position_;
  int count_ = 0;
};

YamlNode parse(const std::string& text, const std::string& name, bool with_position) {
  Copier copier(name, with_position);
  if (text.size() > kMaxBytes) throw ConfigError("{}: {} bytes are too large for a configuration", name, text.size());
  if (auto at = text.find('\0'); at != std::string::npos)
    throw ConfigError("{}: byte {} is zero: this is no text file", name, at);
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return {.place = name};
    if (documents.size() > 1)
      throw ConfigError("{}: {} YAML documents (separated by ---); a configuration is one", name, documents.size());
    return copier.copy(documents[0]);
  } catch (const YAML::Exception& e) {
    std::string hint;
    if (auto tab = text.find('\t'); tab != std::string::npos)
      hint = fmt::format("; line {} has a tab, and YAML is indented with blanks",
                         std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(tab), '\n') + 1);
    throw ConfigError("{}: this is no valid YAML: {}{}", copier.place(e.mark), e.msg, hint);
  }
}

}  // namespace

std::string YamlNode::shown() const {
  switch (kind) {
    case Kind::empty:
      return "nothing";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
    case Kind::scalar:
      break;
  }
  return quoted || text.empty() ? fmt::format("\"{}\"", text) : text;
}

YamlNode read_yaml(const std::string& file) { return parse(read_file(file), file, true); }

YamlNode parse_yaml(const std::string& text, const std::string& name) { return parse(text, name, true); }

YamlNode parse_yaml_value(const std::string& text, const std::string& place) { return parse(text, place, false); }

std::string yaml_string(std::string_view text) {
  auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/'; };
  auto inner = [&](char c) { return word(c) || c == '.' || c == '-' || c == '+' || c == '@'; };
  static constexpr std::array<std::string_view, 8> kReserved{"true", "false", "null", "yes", "no", "on", "off", "y"};
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  bool plain = !text.empty() && word(text[0]) && !std::isdigit(static_cast<unsigned char>(text[0])) &&
               std::all_of(text.begin(), text.end(), inner) &&
               std::find(kReserved.begin(), kReserved.end(), lower) == kReserved.end();
  if (plain) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      quoted += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      quoted += fmt::format("\\x{:02x}", c);
    else
      quoted += c;
  }
  return quoted + '"';
}

}  // namespace chiron
