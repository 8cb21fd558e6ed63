#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

/// The only place in the program that writes files. Every failure is an IoError that names the file, what was being
/// done and the system's reason. Every operation that changes the disk (create, write, fsync, rename, remove) passes
/// one counting point, so that tests can stop the program or fill the disk at any of them.
namespace chiron {

/// Faults to inject, by number of the operation, counted from 1 since set_file_faults(). 0 = never.
struct FileFaults {
  int64_t crash_at = 0;  ///< the process is killed just before this operation; of a write, half the bytes get out first
  int64_t fail_at = 0;   ///< this operation fails with `error`; of a write, half the bytes get out first
  int error = 28;        ///< an errno value; 28 is ENOSPC
  bool lasting = false;  ///< so does every later operation that takes space (not fsync, rename of a file, remove)
};

/// Installs faults and restarts the count at 0. The program's one piece of global mutable state: the faults belong to
/// the process as the disk does, and a test of the real program must reach writes in every thread. Thread-safe; meant
/// to be called before the work starts. Without a call nothing is injected.
void set_file_faults(const FileFaults& faults);
/// Operations since the last set_file_faults() or the program's start.
int64_t file_operations();

/// Throws IoError: "cannot <action> <path>: <reason>"; a full disk is called so.
[[noreturn]] void throw_io_error(std::string_view action, const std::string& path, int error);

/// A file being written, buffered. Not thread-safe.
class FileWriter {
 public:
  enum class Mode : uint8_t {
    create,   ///< in place, from the start: for files in a folder that is itself still temporary
    append,   ///< in place, after what is there
    replace,  ///< under a temporary name beside `path`; takes its place, durable, in close(): all or nothing
  };
  /// `hasher`, if given, sees every byte that is written and outlives the writer.
  explicit FileWriter(std::string path, Mode mode = Mode::create, Hasher* hasher = nullptr);
  /// Closes; a replace that was not closed leaves the old file as it was and no temporary one.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Hands all bytes to the operating system: other processes see them, a crash of this one does not lose them.
  void flush();
  /// flush, then waits until the disk has them.
  void sync();
  /// flush and close; for Mode::replace also sync, rename and fsync of the folder. Call it: only close() reports the
  /// last errors.
  void close();

  const std::string& path() const { return path_; }
  /// Bytes given to write() so far.
  int64_t size() const { return size_; }

 private:
  const std::string& open_path() const { return mode_ == Mode::replace ? temp_ : path_; }
  void put(const char* data, size_t bytes);

  std::string path_, temp_;
  Mode mode_;
  Hasher* hasher_;
  int fd_ = -1;
  int64_t size_ = 0;
  std::vector<char> buffer_;
};

/// Writes a whole file, all or nothing, durable on return.
void write_file(const std::string& path, std::string_view content);
/// Writes a file in place and waits until the disk has it: for one in a folder that is itself still temporary.
void write_synced(const std::string& path, std::string_view content);
/// The whole file. Throws IoError also when it is larger than `max_bytes`.
std::string read_file(const std::string& path, int64_t max_bytes = int64_t{1} << 31);

bool file_exists(const std::string& path);       ///< a regular file, or a link to one
bool directory_exists(const std::string& path);  ///< a directory, or a link to one
int64_t file_size(const std::string& path);
/// Names (without the path) of all entries, sorted, without "." and "..".
std::vector<std::string> list_directory(const std::string& path);
/// The folder that holds `path`: "a/b/c" and "a/b/c/" give "a/b", "c" gives ".".
std::string parent_directory(const std::string& path);

/// Creates a directory and those above it that are missing. One that exists is fine.
void make_directories(const std::string& path);
/// Renames a file or directory within one file system; a file or empty directory at `to` is replaced. Not durable
/// before fsync_directory of the folder.
void rename_path(const std::string& from, const std::string& to);
/// Lets two files or directories change places in one step. Returns false where the file system cannot.
bool exchange_paths(const std::string& a, const std::string& b);
/// The name of a directory that is built beside its place and renamed: `path` without slashes at its end. ConfigError,
/// saying what to do, for what no renamed directory can replace: nothing, ".", "..", a link, a file.
std::string renamable_directory(const std::string& path);
/// Removes one file. One that is missing is fine.
void remove_file(const std::string& path);
/// Removes a file or a directory with all it holds; links are removed, not followed. A missing path is fine.
void remove_tree(const std::string& path);
/// Removes what killed writers of Mode::replace left in a directory. No writer may be at work there.
void remove_unfinished(const std::string& path);
/// Makes creations, renames and removals in this directory durable.
void fsync_directory(const std::string& path);

/// A file open for reading at any place, by any number of threads. It may be replaced meanwhile, by rename. One that is
/// cut short is an IoError of the read; were it mapped into memory, it would be a crash.
class FileReader {
 public:
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes when it was opened.
  int64_t size() const { return size_; }
  /// `bytes` bytes from `offset` on; IoError also if the file ends before.
  void read(int64_t offset, void* to, size_t bytes) const;
  /// XXH3-128 of the bytes from `offset` up to size().
  Hash128 hash(int64_t offset = 0) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace chiron
