#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "io/checkpoint.h"
#include "io/checkpoint_layout.h"

namespace chiron {
namespace {

using namespace checkpoint_layout;

std::string lock_path(const std::string& dir) {
  if (!directory_exists(dir)) {
    make_directories(dir);
    fsync_directory(parent_directory(dir));
  }
  return fmt::format("{}/{}", dir, kLock);
}

FileRecord write_small(const std::string& folder, const std::string& name, const std::string& text) {
  write_synced(fmt::format("{}/{}", folder, name), text);
  return {name, static_cast<int64_t>(text.size()), hash128(text)};
}

FileRecord write_shard(const std::string& folder, std::string name, std::span<const StatePart> parts,
                       const Staging& staging) {
  std::vector<TensorToWrite> tensors = tensors_to_write(parts);
  nlohmann::json offsets = nlohmann::json::object();
  for (const TensorToWrite& t : tensors) {
    const Shape& o = t.box.offset;
    offsets[t.name()] = {{"saved_offsets", std::vector<int64_t>(o.dims.begin(), o.dims.begin() + o.rank)}};
  }
  FileRecord record{std::move(name), 0, {}};
  Hasher hasher;
  FileWriter out(fmt::format("{}/{}", folder, record.name), FileWriter::Mode::create, &hasher);
  write_safetensors(out, std::move(tensors), {{"DCP_SHARDING_INFO", offsets.dump()}, {"DCP_VERSION", "1.0"}}, staging);
  out.sync();
  out.close();
  record.size = out.size();
  record.hash = hasher.digest();
  return record;
}

bool is_whole(const std::string& folder) {
  try {
    read_manifest(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string CheckpointSave::folder_of(const std::string& dir, int64_t step) {
  return fmt::format("{}/{}{}", dir, kSaving, folder_name(step, 0));
}

CheckpointSave::CheckpointSave(const std::string& dir, int64_t step)
    : dir_(dir), temp_(folder_of(dir, step)), step_(step), lock_(FileLock::wait(lock_path(dir))) {
  CHECK(step >= 0);
  remove_leftovers(dir_);
  make_directories(temp_);
}

CheckpointSave::~CheckpointSave() {
  if (committed_) return;
  try {
    remove_tree(temp_);
  } catch (const Error&) {
    // What made the save fail is what gets reported; the next save removes the rest.
  }
}

CheckpointInfo CheckpointSave::commit(std::vector<FileRecord> shards, const nlohmann::json& state,
                                      const std::map<std::string, std::string>& extra) {
  CHECK(!committed_);
  Manifest manifest{step_, std::move(shards)};
  manifest.files.push_back(write_small(temp_, kState, state.dump(2) + "\n"));
  for (const auto& [name, text] : extra) {
    CHECK(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos, "{} as a file's name", name);
    for (const FileRecord& f : manifest.files) CHECK(f.name != name, "two files named {}", name);
    CHECK(name != kManifest && name != kMarker, "{} as a further file", name);
    manifest.files.push_back(write_small(temp_, name, text));
  }
  std::string text = to_text(manifest);
  write_small(temp_, kManifest, text);
  // All else must be on disk before the marker says so.
  fsync_directory(temp_);
  write_small(temp_, kMarker, marker_for(text));
  fsync_directory(temp_);

  // A whole checkpoint of this step is replaced by renaming beside it and removing it afterwards: at no time is there
  // none. One that is not whole is in nobody's use.
  int64_t revision = 0;
  std::vector<std::string> older;
  for (const std::string& name : list_directory(dir_)) {
    auto parsed = parse_folder_name(name);
    if (!parsed || parsed->first != step_) continue;
    if (is_whole(fmt::format("{}/{}", dir_, name))) {
      older.push_back(name);
      revision = std::max(revision, parsed->second + 1);
    } else {
      remove_checkpoint(dir_, name);
    }
  }
  std::string to = fmt::format("{}/{}", dir_, folder_name(step_, revision));
  rename_path(temp_, to);
  committed_ = true;
  fsync_directory(dir_);
  for (const std::string& name : older) remove_checkpoint(dir_, name);
  return {to, step_};
}

std::vector<FileRecord> write_shards(const std::string& folder, const std::string& kind, int rank,
                                     std::span<const StatePart> parts, const Staging& staging) {
  std::vector<FileRecord> records;
  const auto files = split_into_files(parts);
  for (size_t i = 0; i < files.size(); ++i)
    records.push_back(write_shard(
        folder, fmt::format("shard-{:05}-{}-{:05}-of-{:05}.safetensors", rank + 1, kind, i + 1, files.size()), files[i],
        staging));
  return records;
}

CheckpointInfo save_checkpoint(const std::string& dir, int64_t step, std::span<const StatePart> model,
                               std::span<const StatePart> optimizer, const nlohmann::json& state,
                               const std::map<std::string, std::string>& extra, const Staging& staging) {
  std::set<std::string_view> model_names;
  for (const StatePart& part : model) model_names.insert(part.name);
  for (const StatePart& part : optimizer)
    CHECK(!model_names.contains(part.name), "{} in both the model and the optimizer", part.name);
  CheckpointSave save(dir, step);
  std::vector<FileRecord> shards = write_shards(save.folder(), "model", 0, model, staging);
  for (FileRecord& r : write_shards(save.folder(), "optimizer", 0, optimizer, staging)) shards.push_back(std::move(r));
  return save.commit(std::move(shards), state, extra);
}

std::vector<std::string> prune_checkpoints(const std::string& dir, int64_t keep_last) {
  if (!directory_exists(dir)) return {};
  std::optional<FileLock> lock = FileLock::attempt(fmt::format("{}/{}", dir, kLock));
  if (!lock) return {};
  remove_leftovers(dir);
  std::vector<CheckpointInfo> whole = find_checkpoints(dir).whole;
  auto keep = static_cast<size_t>(std::max<int64_t>(keep_last, 1));
  if (whole.size() <= keep) return {};
  std::string oldest_kept = whole[whole.size() - keep].path.substr(dir.size() + 1);
  std::vector<std::string> removed;
  for (const std::string& name : list_directory(dir)) {
    auto parsed = parse_folder_name(name);
    if (!parsed || *parsed >= *parse_folder_name(oldest_kept)) continue;
    remove_checkpoint(dir, name);
    removed.push_back(fmt::format("{}/{}", dir, name));
  }
  return removed;
}

}  // namespace chiron
