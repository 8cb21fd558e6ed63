#pragma once

#include <optional>
#include <string>

namespace chiron {

/// An exclusive lock, held as long as this object and the process live: a killed process leaves none behind. The file
/// holds the owner's process id and stays when the lock goes; the owner may remove it before. Excludes threads of one
/// process from each other too.
class FileLock {
 public:
  /// Throws IoError, naming the process that holds it, if the lock is taken.
  explicit FileLock(const std::string& path);
  /// Waits until the lock is free.
  static FileLock wait(const std::string& path);
  /// Nothing if the lock is taken.
  static std::optional<FileLock> attempt(const std::string& path);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

  /// Whether the file that is locked is still the one at its path: not removed, moved or replaced.
  bool in_place() const;

 private:
  FileLock() = default;
  /// Whether the lock was taken; throws on all other failures.
  bool take(const std::string& path, bool wait);

  std::string path_;
  int fd_ = -1;
};

}  // namespace chiron
