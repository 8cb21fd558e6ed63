#include "io/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json_file.h"
#include "io/box_copy.h"
#include "io/checkpoint_layout.h"
#include "io/tensor_files.h"

namespace chiron {

using namespace checkpoint_layout;

CheckpointScan find_checkpoints(const std::string& dir) {
  CheckpointScan scan;
  if (!directory_exists(dir)) return scan;
  std::vector<std::pair<std::pair<int64_t, int64_t>, std::string>> found;
  for (const std::string& name : list_directory(dir))
    if (auto parsed = parse_folder_name(name)) found.emplace_back(*parsed, fmt::format("{}/{}", dir, name));
  std::sort(found.begin(), found.end());
  for (const auto& [number, path] : found) {
    try {
      if (read_manifest(path).step != number.first) throw DataError("{}/{} is of another step", path, kManifest);
      scan.whole.push_back({path, number.first});
    } catch (const Error& e) {
      // Removed since it was listed: newer ones may be there that were not.
      if (!directory_exists(path)) return find_checkpoints(dir);
      scan.skipped.push_back(fmt::format("{}: {}", path, e.what()));
    }
  }
  return scan;
}

std::optional<CheckpointInfo> newest_checkpoint(const std::string& dir, std::vector<std::string>* skipped) {
  CheckpointScan scan = find_checkpoints(dir);
  if (skipped) skipped->insert(skipped->end(), scan.skipped.begin(), scan.skipped.end());
  return scan.whole.empty() ? std::nullopt : std::optional(scan.whole.back());
}

Checkpoint::Checkpoint(const std::string& path, int share, int shares) : path_(path) {
  if (!directory_exists(path)) throw DataError("{} is no checkpoint folder", path);
  Manifest manifest = read_manifest(path);
  step_ = manifest.step;
  int num_shards = 0;
  for (const FileRecord& record : manifest.files) {
    std::string file = fmt::format("{}/{}", path, record.name);
    const bool shard = record.name.starts_with("shard-"), check = !shard || num_shards++ % shares == share;
    std::string text = shard ? "" : read_file(file);
    if (check && (shard ? FileReader(file).hash() : hash128(text)) != record.hash)
      throw DataError("{} is damaged: its bytes do not have the hash that {} gives", file, kManifest);
    if (shard)
      add_shard(record.name);
    else if (record.name == kState)
      state_ = std::make_unique<nlohmann::json>(parse_json(text, file));
    else
      extra_.emplace(record.name, std::move(text));
  }
  if (!state_) throw DataError("{}/{}: no {} is listed", path, kManifest, kState);
  drop_copies();
}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

void Checkpoint::add_shard(const std::string& name) {
  shards_.push_back(std::make_unique<SafetensorsFile>(fmt::format("{}/{}", path_, name)));
  const SafetensorsFile& file = *shards_.back();
  auto info = file.metadata().find("DCP_SHARDING_INFO");
  if (info == file.metadata().end()) throw DataError("{}: __metadata__ has no DCP_SHARDING_INFO", file.path());
  JsonObject offsets(parse_json(info->second, file.path()), file.path(), "DCP_SHARDING_INFO.");
  for (const StoredTensor& t : file.tensors()) {
    Box box{{}, shape_of(t, file.path())};
    std::vector<int64_t> at = offsets.object(t.name).integers("saved_offsets");
    if (at.size() != static_cast<size_t>(box.size.rank))
      throw DataError("{}: tensor {}: {} offsets for {} dimensions", file.path(), t.name, at.size(), box.size.rank);
    for (int64_t o : at) {
      if (o < 0 || o > (int64_t{1} << 50))
        throw DataError("{}: tensor {}: the offset {} is out of range", file.path(), t.name, o);
      box.offset[box.offset.rank++] = o;
    }
    Stored& stored = tensors_[t.name];
    if (stored.chunks.empty()) stored.global = box.offset;
    if (stored.global.rank != box.size.rank)
      throw DataError("{}: tensor {} has {} dimensions here, {} in another shard", file.path(), t.name, box.size.rank,
                      stored.global.rank);
    for (int i = 0; i < box.size.rank; ++i) stored.global[i] = std::max(stored.global[i], box.offset[i] + box.size[i]);
    stored.chunks.push_back({&file, box});
  }
}

void Checkpoint::drop_copies() {
  for (auto& [name, stored] : tensors_) {
    std::vector<Chunk>& chunks = stored.chunks;
    auto place = [](const Chunk& c) { return std::tie(c.box.offset.dims, c.box.size.dims); };
    std::stable_sort(chunks.begin(), chunks.end(), [&](const Chunk& a, const Chunk& b) { return place(a) < place(b); });
    auto same = [&](const Chunk& a, const Chunk& b) { return place(a) == place(b); };
    chunks.erase(std::unique(chunks.begin(), chunks.end(), same), chunks.end());
    // Sorted by their first rows, so that few can meet.
    for (size_t i = 0; i < chunks.size() && stored.global.rank > 0; ++i)
      for (size_t j = i + 1; j < chunks.size(); ++j) {
        const Box &a = chunks[i].box, &b = chunks[j].box;
        if (b.offset[0] >= a.offset[0] + a.size[0]) break;
        if (common(a, b).size.numel() > 0)
          throw DataError("{} and {} hold the same elements of {}: they are not of one save", chunks[i].file->path(),
                          chunks[j].file->path(), name);
      }
  }
}

std::string Checkpoint::extra(const std::string& name) const {
  auto it = extra_.find(name);
  if (it == extra_.end()) throw DataError("{}: the checkpoint carries no {}", path_, name);
  return it->second;
}

std::vector<std::string> Checkpoint::names() const {
  const auto names = std::views::keys(tensors_);
  return {names.begin(), names.end()};
}

const Checkpoint::Stored& Checkpoint::at(const std::string& name) const {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) throw DataError("{}: the checkpoint has no tensor {}", path_, name);
  return it->second;
}

Shape Checkpoint::shape(const std::string& name) const { return at(name).global; }

void Checkpoint::check_names(std::span<const std::string> wanted) const {
  const auto names = std::views::keys(tensors_);
  std::set<std::string> rest(names.begin(), names.end());
  std::vector<std::string> missing;
  for (const std::string& name : wanted) {
    if (!tensors_.contains(name)) missing.push_back(name);
    rest.erase(name);
  }
  if (missing.empty() && rest.empty()) return;
  std::string message = fmt::format("{}: the checkpoint does not fit this model and optimizer;", path_);
  if (!missing.empty()) message += fmt::format(" missing: {};", listed(missing));
  if (!rest.empty()) message += fmt::format(" not asked for: {};", listed({rest.begin(), rest.end()}));
  message.pop_back();
  throw DataError("{}", message);
}

void Checkpoint::read(const StatePart& whole, const Staging& staging) const {
  read_part(staging, whole, [&](const StatePart& part) { read_host(part); });
}

void Checkpoint::read_host(const StatePart& part) const {
  const Stored& stored = at(part.name);
  if (stored.global != part.global)
    throw DataError("{}: tensor {}: the shape is {}, expected {}", path_, part.name, stored.global.str(),
                    part.global.str());
  int64_t found = 0;
  for (const Chunk& chunk : stored.chunks) found += chunk.file->read_overlap(part, chunk.box.offset);
  if (int64_t all = part.part.size.numel(); found != all)
    throw DataError("{}: tensor {}: the shards hold {} of the {} elements asked for", path_, part.name, found, all);
}

}  // namespace chiron
