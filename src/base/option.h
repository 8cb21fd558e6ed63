#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/yaml.h"

namespace chiron {

/// One option, bound to the member of an options struct that holds its value. Everything that is known of it is stated
/// where it is described; reading, help, dumps and documents ask here. The struct outlives the option.
class Option {
 public:
  Option(std::string key, std::string doc) : key_(std::move(key)), doc_(std::move(doc)) {}
  virtual ~Option() = default;
  Option(const Option&) = delete;
  Option& operator=(const Option&) = delete;

  const std::string& key() const { return key_; }    ///< with its groups: "training.batch_size"
  const std::string& doc() const { return doc_; }    ///< one or more sentences
  const std::string& unit() const { return unit_; }  ///< may be empty
  /// Whether a run may be resumed with another value. The others define the numbers that a run computes.
  bool may_change() const { return may_change_; }
  /// Where the value was set; empty: nowhere, it is the default.
  const std::string& place() const { return place_; }

  /// Takes the value from a node, or throws a ConfigError that names place, option, value and what is allowed.
  void set(const YamlNode& from);
  /// Takes the value from a command line, where scalars need no quotes. `place` names the flag.
  void set_text(const std::string& text, const std::string& place);

  /// The value as one line of YAML that reads back as the same value.
  virtual std::string yaml() const = 0;
  /// What may be given: "a whole number >= 1", "one of cosine, linear".
  virtual std::string allowed() const = 0;
  /// The JSON Schema of the value, as JSON.
  virtual std::string json_schema() const = 0;
  /// Throws the ConfigError that names the place, the option, the problem and what is allowed.
  [[noreturn]] void fail(const YamlNode& from, const std::string& problem) const;

 protected:
  virtual void read(const YamlNode& from) = 0;
  /// Whether `text` from a command line is YAML rather than the scalar itself.
  virtual bool text_is_yaml(const std::string&) const { return false; }
  /// The text of an unquoted scalar; fails for all else.
  const std::string& scalar(const YamlNode& from) const;

  std::string unit_;
  bool may_change_ = false;

 private:
  std::string key_, doc_, place_;
};

/// What every kind of option has besides its limits: the member of type T that it is bound to.
template <class Self, class T>
class OptionOf : public Option {
 public:
  OptionOf(std::string key, T& value, std::string doc) : Option(std::move(key), std::move(doc)), value_(value) {}
  using Option::may_change, Option::unit;
  Self& unit(std::string name) {
    unit_ = std::move(name);
    return static_cast<Self&>(*this);
  }
  Self& changeable() {
    may_change_ = true;
    return static_cast<Self&>(*this);
  }

 protected:
  T& value_;
};

/// true or false; yes, no, on, off are refused.
class BoolOption : public OptionOf<BoolOption, bool> {
 public:
  using OptionOf::OptionOf;
  std::string yaml() const override { return value_ ? "true" : "false"; }
  std::string allowed() const override { return "true or false"; }
  std::string json_schema() const override;

 protected:
  void read(const YamlNode& from) override;
};

/// A decimal whole number; the suffixes k, M and G stand for 10^3, 10^6 and 10^9: 512k is 512000.
class IntOption : public OptionOf<IntOption, int64_t> {
 public:
  using OptionOf::OptionOf;
  IntOption& at_least(int64_t limit) {
    min_ = limit;
    return *this;
  }
  IntOption& at_most(int64_t limit) {
    max_ = limit;
    return *this;
  }
  std::string yaml() const override;
  std::string allowed() const override;
  std::string json_schema() const override;

 protected:
  void read(const YamlNode& from) override;

 private:
  int64_t min_ = std::numeric_limits<int64_t>::min(), max_ = std::numeric_limits<int64_t>::max();
};

/// A finite decimal number that float32 holds as a normal one, or 0: 0.1, 1e-4, 3e8, 500k. No infinity, no NaN.
class DoubleOption : public OptionOf<DoubleOption, double> {
 public:
  using OptionOf::OptionOf;
  DoubleOption& at_least(double limit) { return limits(limit, false, max_, max_open_); }
  DoubleOption& above(double limit) { return limits(limit, true, max_, max_open_); }
  DoubleOption& at_most(double limit) { return limits(min_, min_open_, limit, false); }
  DoubleOption& below(double limit) { return limits(min_, min_open_, limit, true); }
  std::string yaml() const override;
  std::string allowed() const override;
  std::string json_schema() const override;

 protected:
  void read(const YamlNode& from) override;

 private:
  DoubleOption& limits(double min, bool min_open, double max, bool max_open) {
    min_ = min, min_open_ = min_open, max_ = max, max_open_ = max_open;
    return *this;
  }
  double min_ = -std::numeric_limits<double>::infinity(), max_ = std::numeric_limits<double>::infinity();
  bool min_open_ = false, max_open_ = false;
};

class StringOption : public OptionOf<StringOption, std::string> {
 public:
  using OptionOf::OptionOf;
  std::string yaml() const override { return yaml_string(value_); }
  std::string allowed() const override { return "a string"; }
  std::string json_schema() const override;

 protected:
  void read(const YamlNode& from) override;
};

/// A list of strings; one string alone is a list of one.
class StringsOption : public OptionOf<StringsOption, std::vector<std::string>> {
 public:
  using OptionOf::OptionOf;
  std::string yaml() const override;
  std::string allowed() const override { return "a string or a list of strings"; }
  std::string json_schema() const override;

 protected:
  void read(const YamlNode& from) override;
  bool text_is_yaml(const std::string& text) const override { return text.starts_with('['); }
};

/// One of a list of words. The enum is a byte, its values count from 0, and names_of(E) gives their spellings in that
/// order.
class ChoiceOption : public OptionOf<ChoiceOption, uint8_t> {
 public:
  template <class E>
  ChoiceOption(std::string key, E& value, std::string doc)
      : OptionOf(std::move(key), reinterpret_cast<uint8_t&>(value), std::move(doc)) {
    static_assert(std::is_same_v<std::underlying_type_t<E>, uint8_t>);
    for (std::string_view name : names_of(E{})) names_.emplace_back(name);
  }
  std::string yaml() const override { return names_[value_]; }
  std::string allowed() const override;
  std::string json_schema() const override;

 protected:
  void read(const YamlNode& from) override;

 private:
  std::vector<std::string> names_;
};

/// A value with several forms, which its type states itself:
///   static T from_yaml(const YamlNode&, const Option&)   calls the option's fail() if it cannot
///   std::string yaml() const;   static std::string allowed();   static std::string json_schema();
template <class T>
class FormsOption : public OptionOf<FormsOption<T>, T> {
 public:
  using OptionOf<FormsOption, T>::OptionOf;
  std::string yaml() const override { return this->value_.yaml(); }
  std::string allowed() const override { return T::allowed(); }
  std::string json_schema() const override { return T::json_schema(); }

 protected:
  void read(const YamlNode& from) override { this->value_ = T::from_yaml(from, *this); }
  bool text_is_yaml(const std::string&) const override { return true; }
};

/// The option that fits the member's type.
template <class T>
auto make_option(std::string key, T& value, std::string doc) {
  if constexpr (std::is_same_v<T, bool>)
    return std::make_unique<BoolOption>(std::move(key), value, std::move(doc));
  else if constexpr (std::is_same_v<T, int64_t>)
    return std::make_unique<IntOption>(std::move(key), value, std::move(doc));
  else if constexpr (std::is_same_v<T, double>)
    return std::make_unique<DoubleOption>(std::move(key), value, std::move(doc));
  else if constexpr (std::is_same_v<T, std::string>)
    return std::make_unique<StringOption>(std::move(key), value, std::move(doc));
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return std::make_unique<StringsOption>(std::move(key), value, std::move(doc));
  else if constexpr (std::is_enum_v<T>)
    return std::make_unique<ChoiceOption>(std::move(key), value, std::move(doc));
  else
    return std::make_unique<FormsOption<T>>(std::move(key), value, std::move(doc));
}

}  // namespace chiron
