#include "io/hf_folder.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/box_copy.h"

namespace chiron {
namespace {

JsonObject read_config(const std::string& dir) {
  if (!directory_exists(dir)) throw DataError("{} is no folder; a model folder with a config.json is expected", dir);
  if (!file_exists(dir + "/config.json"))
    throw DataError("{}: no config.json is there, so this is no model folder", dir);
  return JsonObject::read(dir + "/config.json");
}

}  // namespace

HfFolder::HfFolder(const std::string& dir) : dir_(dir), config_(read_config(dir)), tensors_(dir) {
  std::string path = dir + "/generation_config.json";
  if (file_exists(path)) generation_config_ = JsonObject::read(path);
}

std::optional<std::string> HfFolder::stored_name(std::string_view name, std::string_view prefix) const {
  std::vector<std::string> candidates = {std::string(name)};
  if (!prefix.empty()) {
    if (name.starts_with(prefix))
      candidates.emplace_back(name.substr(prefix.size()));
    else
      candidates.push_back(fmt::format("{}{}", prefix, name));
  }
  std::optional<std::string> found;
  for (const std::string& candidate : candidates) {
    if (!tensors_.file_of(candidate)) continue;
    if (found) throw DataError("{}: both {} and {} are stored; which one counts?", dir_, *found, candidate);
    found = candidate;
  }
  return found;
}

const StoredTensor* HfFolder::find(std::string_view name, std::string_view prefix) const {
  std::optional<std::string> stored = stored_name(name, prefix);
  return stored ? &tensors_.file_of(*stored)->at(*stored) : nullptr;
}

void HfFolder::read(const StatePart& part, std::string_view prefix, const Staging& staging) const {
  std::optional<std::string> stored = stored_name(part.name, prefix);
  if (!stored) throw DataError("{}: there is no tensor {}", dir_, part.name);
  StatePart as_stored = part;
  as_stored.name = *stored;
  read_part(staging, as_stored, [&](const StatePart& host) { tensors_.file_of(*stored)->read(host); });
}

void write_hf_folder(const std::string& dir, const nlohmann::json& config, const nlohmann::json& generation_config,
                     std::span<const StatePart> parts, const HfWriteOptions& options) {
  const std::string to = renamable_directory(dir);
  if (directory_exists(to) && !list_directory(to).empty())
    throw ConfigError("{} is not empty; name a folder that does not exist yet or is empty", to);
  std::string parent = parent_directory(to);
  std::string temp = fmt::format("{}/.{}.tmp-{}", parent, to.substr(to.find_last_of('/') + 1), getpid());
  make_directories(parent);
  try {
    remove_tree(temp);
    make_directories(temp);
    write_synced(temp + "/config.json", config.dump(2) + "\n");
    write_synced(temp + "/generation_config.json", generation_config.dump(2) + "\n");
    for (const auto& [name, text] : options.extra) write_synced(fmt::format("{}/{}", temp, name), text);
    write_tensor_files(temp, parts, options.as, options.max_file_bytes);
    fsync_directory(temp);
    rename_path(temp, to);
    fsync_directory(parent);
  } catch (...) {
    try {
      remove_tree(temp);
    } catch (const IoError&) {
      // The first error is the one to report.
    }
    throw;
  }
}

}  // namespace chiron
