#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace chiron {

/// Parses JSON: the one reader of all files of it. DataError, naming `file`, line and column, of a syntax error, a key
/// that stands twice in one object, a number beyond the range of a double, or more nesting than any file needs.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// An object of a JSON file, read with types: every DataError names the file, the key with its path, what stands there
/// and what is allowed. A key that is null counts as absent.
class JsonObject {
 public:
  /// The file's top level.
  static JsonObject read(const std::string& path);
  /// DataError unless the value is an object.
  JsonObject(const nlohmann::json& object, std::string file, std::string key_path = "");
  ~JsonObject();
  JsonObject(JsonObject&&) noexcept;
  JsonObject& operator=(JsonObject&&) noexcept;

  const std::string& file() const { return file_; }
  const nlohmann::json& value() const { return *json_; }
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const;

  // Without a fallback the key must be there.
  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  int64_t count(std::string_view key) const;  ///< an integer from 0
  double number(std::string_view key) const;  ///< an integer will do
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  JsonObject object(std::string_view key) const;
  std::vector<JsonObject> objects(std::string_view key) const;
  /// A list, or a single value that stands for a list of one; absent: empty.
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;

  /// Throws the DataError of a key whose value is not what is allowed.
  [[noreturn]] void wrong(std::string_view key, std::string_view allowed) const;

 private:
  const nlohmann::json& at(std::string_view key) const;
  const nlohmann::json* find(std::string_view key) const;

  std::unique_ptr<nlohmann::json> json_;
  std::string file_, key_path_;
};

}  // namespace chiron
