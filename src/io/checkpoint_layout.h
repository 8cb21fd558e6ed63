#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint.h"

/// Names and small files of a checkpoint folder, shared by the code that saves, finds and loads.
namespace chiron::checkpoint_layout {

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kMarker = "COMPLETE";
inline constexpr const char* kState = "trainer_state.json";
inline constexpr const char* kLock = ".lock";
inline constexpr const char* kSaving = ".saving-";      ///< prefix of folders that a save builds
inline constexpr const char* kRemoving = ".removing-";  ///< prefix of folders that are being removed
inline constexpr int64_t kFormatVersion = 1;

struct Manifest {
  int64_t step = 0;
  std::vector<FileRecord> files;
};

std::string to_text(const Manifest& manifest);
/// DataError, naming `file`.
Manifest parse_manifest(const std::string& text, const std::string& file);
/// The marker's text for a manifest's text.
std::string marker_for(const std::string& manifest);
/// Reads marker and manifest of a checkpoint folder and checks them against each other and against the sizes of the
/// files. DataError, naming the file, if the checkpoint is not whole.
Manifest read_manifest(const std::string& folder);

/// "step-00000120", or "step-00000120.1" for one that was saved when an older one of the same step was still there.
std::string folder_name(int64_t step, int64_t revision);
/// Step and revision; nothing if this is no checkpoint's name.
std::optional<std::pair<int64_t, int64_t>> parse_folder_name(const std::string& name);

/// Moves a checkpoint out of sight in one step, then removes it.
void remove_checkpoint(const std::string& dir, const std::string& name);
/// Removes what saves and removals that died have left. The caller holds the lock of `dir`.
void remove_leftovers(const std::string& dir);

}  // namespace chiron::checkpoint_layout
