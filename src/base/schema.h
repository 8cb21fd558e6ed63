#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/option.h"
#include "base/yaml.h"

namespace chiron {

/// The options of one options struct, in the order in which its describe() states them. A struct describes itself once:
///
///   void CheckpointOptions::describe(Schema& s) {
///     s.option("every", every, "Steps between two checkpoints.").at_least(1).unit("steps").changeable();
///     s.group("rope", rope, "Rotary position embedding.");      // a struct with a describe() of its own
///   }
///
/// The schema refers to the struct it was made from and must not outlive it. A default is what a fresh struct holds.
class Schema {
 public:
  template <class T>
  explicit Schema(T& options) {
    T fresh{};
    fresh.describe(*this);
    for (const auto& option : options_) defaults_.push_back(option->yaml());
    options_.clear();
    groups_.clear();
    options.describe(*this);
  }

  // For describe().
  template <class T>
  auto& option(const std::string& key, T& member, std::string doc) {
    auto made = make_option(prefix_ + key, member, std::move(doc));
    auto& reference = *made;
    options_.push_back(std::move(made));
    return reference;
  }
  template <class G>
  void group(const std::string& key, G& member, std::string doc) {
    groups_.push_back({prefix_ + key, std::move(doc)});
    std::string outer = prefix_;
    prefix_ += key + ".";
    member.describe(*this);
    prefix_ = outer;
  }

  struct Group {
    std::string key, doc;
  };
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }
  const std::string& default_of(size_t index) const { return defaults_[index]; }
  /// The option with this full key, or null.
  Option* find(std::string_view key) const;

  /// Takes all values that a document gives. Throws one ConfigError for all that it finds, each with file:line:column:
  /// an unknown key (with the nearest spelling), a value where a group belongs, a wrong type, a value out of range.
  void read(const YamlNode& document);
  /// Takes one "a.b=value" of a command line, checked like a document; messages name `--set a.b=value` as the place.
  void set(const std::string& assignment);

  /// All values as a YAML document that read() takes, each option on one line. `keep` chooses the options.
  template <class Keep>
  std::string dump(Keep keep) const {
    std::string text;
    std::string last;
    for (const auto& option : options_) {
      if (!keep(*option)) continue;
      text += open_groups(last, option->key()) + option->yaml() + "\n";
      last = option->key();
    }
    return text;
  }
  std::string dump() const {
    return dump([](const Option&) { return true; });
  }
  /// Starts the line of an option: the lines of the groups that `last`, the option before it, was not in, then the
  /// indent and "name: ".
  static std::string open_groups(std::string_view last, std::string_view key);

 private:
  void read_group(const YamlNode& node, const std::string& prefix);
  void read_entry(const YamlNode& key, const YamlNode& value, const std::string& prefix);
  [[noreturn]] void fail_unknown(const std::string& place, const std::string& prefix, const std::string& name) const;

  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::string> defaults_;
  std::vector<Group> groups_;
  std::string prefix_;
};

/// An option whose values differ, as YAML.
struct Difference {
  std::string key, before, now;
};

/// The options that differ and may not change when a run is resumed. Both schemas describe the same struct.
std::vector<Difference> differences(const Schema& before, const Schema& now);

/// 32 hex digits over keys and values of the options that may not change on resume, that is, those that define the
/// numbers. Independent of machine, order of keys in the file and options that have no say.
std::string fingerprint(const Schema& schema);

}  // namespace chiron
