#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chiron {

/// A node of a YAML document, as text: no scalar is given a type here, since YAML's own typing reads 010 as 8 and yes
/// as true. Keys of maps are scalars and no key stands twice in a map.
struct YamlNode {
  enum class Kind { empty, scalar, list, map };
  Kind kind = Kind::empty;
  std::string text{};              ///< of a scalar
  bool quoted = false;             ///< the scalar stood in quotes or in a block: it is a string, whatever it looks like
  std::vector<YamlNode> keys{};    ///< of a map, matching `values`
  std::vector<YamlNode> values{};  ///< of a map, or the items of a list
  std::string place{};  ///< "FILE:LINE:COLUMN", both from 1; or what else a message should name as the source

  bool is(Kind k) const { return kind == k; }
  /// "the list", "the map", "nothing" or the quoted text: how a message calls this value.
  std::string shown() const;
};

/// Reads the one document of a file. Throws IoError if it cannot be read, ConfigError (file:line:column) if it is no
/// YAML, holds several documents, a duplicate key, a key that is no scalar, or is larger than 1 MiB.
YamlNode read_yaml(const std::string& file);
/// The same from a text; `name` stands for the file in messages.
YamlNode parse_yaml(const std::string& text, const std::string& name);
/// A value from a command line: every place is `place`.
YamlNode parse_yaml_value(const std::string& text, const std::string& place);

/// `text` as a YAML scalar that is read back as the same string: plain where that is safe, else in double quotes.
std::string yaml_string(std::string_view text);

}  // namespace chiron
