#include "io/checkpoint_layout.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_file.h"

namespace chiron::checkpoint_layout {
namespace {

/// All of the text as a number without sign.
std::optional<int64_t> digits(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// A number in hexadecimal, exactly 16 lower-case digits.
std::optional<uint64_t> hex64(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + 16, value, 16);
  return value;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  nlohmann::json files = nlohmann::json::object();
  for (const FileRecord& f : manifest.files) files[f.name] = {{"size", f.size}, {"xxh3_128", f.hash.hex()}};
  nlohmann::json all = {{"format_version", kFormatVersion}, {"step", manifest.step}, {"files", std::move(files)}};
  return all.dump(2) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& file) {
  JsonObject all(parse_json(text, file), file);
  int64_t version = all.integer("format_version");
  if (version != kFormatVersion)
    throw DataError("{}: format_version is {}, this program reads {}", file, version, kFormatVersion);
  Manifest manifest;
  manifest.step = all.integer("step");
  JsonObject files = all.object("files");
  for (const std::string& name : files.keys()) {
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos)
      throw DataError("{}: \"{}\" is no name of a file in the checkpoint", file, name);
    JsonObject entry = files.object(name);
    std::string hash = entry.text("xxh3_128");
    auto high = hex64(std::string_view(hash).substr(0, 16));
    auto low = hash.size() == 32 ? hex64(std::string_view(hash).substr(16)) : std::nullopt;
    if (!high || !low) throw DataError("{}: {}: xxh3_128 is \"{}\", expected 32 hex digits", file, name, hash);
    manifest.files.push_back({name, entry.integer("size"), {*high, *low}});
  }
  return manifest;
}

std::string marker_for(const std::string& manifest) {
  return fmt::format("manifest.json xxh3_128 {}\n", hash128(manifest).hex());
}

Manifest read_manifest(const std::string& folder) {
  std::string manifest_path = fmt::format("{}/{}", folder, kManifest),
              marker_path = fmt::format("{}/{}", folder, kMarker);
  if (!file_exists(marker_path)) throw DataError("{} is missing: the save did not end", marker_path);
  if (!file_exists(manifest_path)) throw DataError("{} is missing", manifest_path);
  std::string text = read_file(manifest_path);
  if (read_file(marker_path) != marker_for(text))
    throw DataError("{} and {} disagree: one of them is damaged", marker_path, manifest_path);
  Manifest manifest = parse_manifest(text, manifest_path);
  for (const FileRecord& f : manifest.files) {
    std::string path = fmt::format("{}/{}", folder, f.name);
    if (!file_exists(path)) throw DataError("{} is missing", path);
    if (int64_t size = file_size(path); size != f.size)
      throw DataError("{}: {} bytes, the manifest says {}", path, size, f.size);
  }
  return manifest;
}

std::string folder_name(int64_t step, int64_t revision) {
  return revision ? fmt::format("step-{:08}.{}", step, revision) : fmt::format("step-{:08}", step);
}

std::optional<std::pair<int64_t, int64_t>> parse_folder_name(const std::string& name) {
  std::string_view rest = name;
  if (!rest.starts_with("step-")) return std::nullopt;
  rest.remove_prefix(5);
  size_t dot = rest.find('.');
  auto step = digits(rest.substr(0, dot));
  auto revision = dot == std::string_view::npos ? std::optional<int64_t>(0) : digits(rest.substr(dot + 1));
  if (!step || !revision || name != folder_name(*step, *revision)) return std::nullopt;
  return std::pair(*step, *revision);
}

void remove_checkpoint(const std::string& dir, const std::string& name) {
  std::string from = fmt::format("{}/{}", dir, name), to = fmt::format("{}/{}{}", dir, kRemoving, name);
  remove_tree(to);
  rename_path(from, to);
  fsync_directory(dir);
  remove_tree(to);
}

void remove_leftovers(const std::string& dir) {
  for (const std::string& name : list_directory(dir))
    if (name.starts_with(kSaving) || name.starts_with(kRemoving)) remove_tree(fmt::format("{}/{}", dir, name));
}

}  // namespace chiron::checkpoint_layout
