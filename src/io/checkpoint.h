#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "io/safetensors.h"

/// Checkpoints: DIR/step-00000120/ holds
///   shard-0000R-model-00001-of-00001.safetensors      of each rank its part of the model, laid out as PyTorch's
///   shard-0000R-optimizer-00001-of-00001.safetensors  distributed checkpoints are (torch/distributed/checkpoint/
///                                                     hf_storage.py): offsets in __metadata__, one chunk of a tensor
///                                                     in a file, so that a rank with several has several files
///   trainer_state.json and further small files of the trainer's own
///   manifest.json   format version, step, size and XXH3-128 of each file above
///   COMPLETE        written last: the manifest's XXH3-128
/// A checkpoint is built in DIR/.saving-*, synced, and renamed: it is there as a whole or not at all.
namespace chiron {

/// A whole checkpoint: marker and manifest agree and every file has its size.
struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
};

/// What find_checkpoints saw.
struct CheckpointScan {
  std::vector<CheckpointInfo> whole;  ///< oldest first
  std::vector<std::string> skipped;   ///< "PATH: reason", for the log
};

/// Looks at sizes only, so it is quick. An absent `dir` holds none. A run may save and prune meanwhile.
CheckpointScan find_checkpoints(const std::string& dir);
/// The newest whole one. Reasons why others were passed over are added to `skipped`, if given.
std::optional<CheckpointInfo> newest_checkpoint(const std::string& dir, std::vector<std::string>* skipped = nullptr);

/// A file of a checkpoint, as the manifest lists it.
struct FileRecord {
  std::string name;
  int64_t size = 0;
  Hash128 hash;
};

/// A checkpoint being built. One process begins and commits it; every rank writes its shards into folder().
class CheckpointSave {
 public:
  /// Waits for another save into `dir` to end, removes what dead ones left, makes the temporary folder.
  CheckpointSave(const std::string& dir, int64_t step);
  /// Without commit(): removes the temporary folder, if it can.
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  const std::string& folder() const { return temp_; }
  /// The same for those who did not begin it.
  static std::string folder_of(const std::string& dir, int64_t step);
  /// Writes what is small, then manifest and marker, and renames. `shards` are all ranks' records; `extra` (name ->
  /// text) are further files to carry. Afterwards the checkpoint is on disk. An older one of the same step is removed.
  CheckpointInfo commit(std::vector<FileRecord> shards, const nlohmann::json& state,
                        const std::map<std::string, std::string>& extra);

 private:
  std::string dir_, temp_;
  int64_t step_;
  FileLock lock_;
  bool committed_ = false;
};

/// Writes one rank's parts of the model or the optimizer, as they lie in memory, hashed on the way and synced. `kind`
/// is "model" or "optimizer", `rank` counts from 0. Without parts there is no file.
std::vector<FileRecord> write_shards(const std::string& folder, const std::string& kind, int rank,
                                     std::span<const StatePart> parts, const Staging& staging = {});

/// One rank's whole save. Throws IoError, naming the file, when the disk refuses; older checkpoints stay as they are.
CheckpointInfo save_checkpoint(const std::string& dir, int64_t step, std::span<const StatePart> model,
                               std::span<const StatePart> optimizer, const nlohmann::json& state,
                               const std::map<std::string, std::string>& extra = {}, const Staging& staging = {});

/// A checkpoint opened for reading.
class Checkpoint {
 public:
  /// Reads every byte and checks all hashes: DataError, naming the file, for any damage, and for shards that overlap
  /// without being copies. Of `shares` ranks that open it together each checks the hashes of its share of the shards.
  explicit Checkpoint(const std::string& path, int share = 0, int shares = 1);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  const std::string& path() const { return path_; }
  int64_t step() const { return step_; }
  const nlohmann::json& state() const { return *state_; }
  /// The text of a further file; DataError if the checkpoint has none of this name.
  std::string extra(const std::string& name) const;
  bool has_extra(const std::string& name) const { return extra_.contains(name); }

  /// Names of all tensors, sorted.
  std::vector<std::string> names() const;
  /// Size of the global tensor; DataError if there is none of this name.
  Shape shape(const std::string& name) const;
  /// DataError that lists what is missing and what nobody asks for, unless the two sets are equal.
  void check_names(std::span<const std::string> wanted) const;
  /// Fills part.data from whatever shards hold it. DataError: no such tensor, another global shape, a type that does
  /// not convert, or elements that no shard holds.
  void read(const StatePart& part, const Staging& staging = {}) const;

 private:
  struct Chunk {
    const SafetensorsFile* file;
    Box box;
  };
  struct Stored {
    std::vector<Chunk> chunks;
    Shape global;
  };
  void add_shard(const std::string& name);
  /// Leaves one of each chunk's copies.
  void drop_copies();
  void read_host(const StatePart& part) const;
  const Stored& at(const std::string& name) const;

  std::string path_;
  int64_t step_ = 0;
  std::unique_ptr<nlohmann::json> state_;
  std::map<std::string, std::string> extra_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::map<std::string, Stored> tensors_;
};

/// Keeps the newest `keep_last` (at least 1) whole checkpoints and removes everything older, and what dead saves and
/// removals left. Does nothing while a save runs. Returns the paths of the checkpoints removed. A crash on the way
/// leaves no half-removed checkpoint that looks whole.
std::vector<std::string> prune_checkpoints(const std::string& dir, int64_t keep_last);

}  // namespace chiron
