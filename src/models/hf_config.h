#pragma once

#include <nlohmann/json_fwd.hpp>

#include <initializer_list>
#include <string>
#include <string_view>

namespace chiron {

/// Typed reading of a Hugging Face config.json. A key that is absent or null gives the default, where there is one; a
/// wrong type, or no value without a default, is a DataError that names file and key. Several spellings of a key are
/// tried in order.
class HfConfig {
 public:
  using Keys = std::initializer_list<const char*>;

  /// Both arguments outlive the object.
  HfConfig(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {}

  int64_t integer(Keys keys) const;  ///< required
  int64_t integer(Keys keys, int64_t otherwise) const;
  int64_t integer(const char* key, int64_t otherwise) const { return integer({key}, otherwise); }
  double number(const char* key) const;  ///< required
  double number(const char* key, double otherwise) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string text(const char* key) const;  ///< required
  std::string text(Keys keys, const std::string& otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const { return text(Keys{key}, otherwise); }

  bool has(const char* key) const;
  /// The object under a key; nullptr if absent or null.
  const nlohmann::json* object(const char* key) const;
  const std::string& file() const { return file_; }

  /// A switch whose other position is not implemented.
  void require(const char* key, bool value) const;
  /// `architectures`, if given, must name this one.
  void require_architecture(std::string_view name) const;
  [[noreturn]] void refuse(const char* key, const std::string& value, std::string_view supported) const;

 private:
  const nlohmann::json* find(Keys keys, const char*& key) const;
  [[noreturn]] void wrong_type(const char* key, const nlohmann::json& value, std::string_view expected) const;

  const nlohmann::json& json_;
  const std::string& file_;
};

}  // namespace chiron
