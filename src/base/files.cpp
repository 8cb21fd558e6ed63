#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_operation.h"

namespace chiron {

using file_operation::Op, file_operation::operate, file_operation::operate_write;

namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr std::string_view kUnfinished = ".tmp-";  // .NAME.tmp-PID

/// Opens for reading; a directory is refused here, since only read() would say so.
int open_to_read(const std::string& path, struct stat& info) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_io_error("open", path, errno);
  int error = ::fstat(fd, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
  if (error) {
    ::close(fd);
    throw_io_error("read", path, error);
  }
  return fd;
}

void remove_entry(const std::string& path, bool directory) {
  int r = operate(Op::takes_none, [&] { return directory ? ::rmdir(path.c_str()) : ::unlink(path.c_str()); });
  if (r != 0 && errno != ENOENT) throw_io_error("remove", path, errno);
}

}  // namespace

void throw_io_error(std::string_view action, const std::string& path, int error) {
  std::string reason = std::generic_category().message(error);
  if (error == ENOSPC) reason = "the disk is full (" + reason + "); free some space or choose another folder";
  if (error == EDQUOT) reason = "your disk quota is used up (" + reason + ")";
  throw IoError("cannot {} {}: {}", action, path, reason);
}

FileWriter::FileWriter(std::string path, Mode mode, Hasher* hasher)
    : path_(std::move(path)), mode_(mode), hasher_(hasher) {
  if (mode_ == Mode::replace) {
    std::string name = path_.substr(path_.find_last_of('/') + 1);
    // The process id keeps two programs that replace the same file from sharing one temporary file.
    temp_ = path_.substr(0, path_.size() - name.size()) + fmt::format(".{}{}{}", name, kUnfinished, getpid());
  }
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (mode_ == Mode::append ? O_APPEND : O_TRUNC);
  fd_ = operate(Op::takes_space, [&] { return ::open(open_path().c_str(), flags, 0666); });
  if (fd_ < 0) throw_io_error("create", path_, errno);
  buffer_.reserve(kBufferBytes);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  if (mode_ == Mode::replace) {
    operate(Op::takes_none, [&] { return ::unlink(temp_.c_str()); });
  } else if (!buffer_.empty()) {
    operate_write(fd_, buffer_.data(), buffer_.size());
  }
  ::close(fd_);
}

void FileWriter::put(const char* data, size_t bytes) {
  if (!operate_write(fd_, data, bytes)) throw_io_error("write", path_, errno);
}

void FileWriter::write(const void* data, size_t bytes) {
  CHECK(fd_ >= 0, "write after close of {}", path_);
  size_ += static_cast<int64_t>(bytes);
  // In pieces, so that the hasher leaves them in the cache for the copy that follows.
  for (const char* from = static_cast<const char*>(data); bytes > 0;) {
    size_t piece = std::min(bytes, kBufferBytes);
    if (hasher_) hasher_->update(from, piece);
    if (buffer_.size() + piece > kBufferBytes) flush();
    if (piece == kBufferBytes)
      put(from, piece);
    else
      buffer_.insert(buffer_.end(), from, from + piece);
    from += piece;
    bytes -= piece;
  }
}

void FileWriter::flush() {
  if (buffer_.empty()) return;
  // Emptied first: after a failure the destructor must not write the same bytes again.
  std::vector<char> full;
  full.swap(buffer_);
  put(full.data(), full.size());
  full.clear();
  buffer_.swap(full);
}

void FileWriter::sync() {
  CHECK(fd_ >= 0, "sync after close of {}", path_);
  flush();
  if (operate(Op::takes_none, [&] { return ::fsync(fd_); }) != 0) throw_io_error("fsync", path_, errno);
}

void FileWriter::close() {
  if (fd_ < 0) return;
  if (mode_ == Mode::replace) {
    sync();
    if (operate(Op::takes_none, [&] { return ::rename(temp_.c_str(), path_.c_str()); }) != 0)
      throw_io_error("replace", path_, errno);
  } else {
    flush();
  }
  // Some network file systems report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw_io_error("close", path_, errno);
  if (mode_ == Mode::replace) fsync_directory(parent_directory(path_));
}

void write_file(const std::string& path, std::string_view content) {
  FileWriter writer(path, FileWriter::Mode::replace);
  writer.write(content);
  writer.close();
}

void write_synced(const std::string& path, std::string_view content) {
  FileWriter writer(path);
  writer.write(content);
  writer.sync();
  writer.close();
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  struct stat info;
  int fd = open_to_read(path, info);
  std::string text;
  // Read to the end, not to st_size: pipes and /proc have none.
  char chunk[1 << 16];
  for (;;) {
    ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    int error = n < 0 ? errno : 0;
    bool too_large = n > 0 && static_cast<int64_t>(text.size()) + n > max_bytes;
    if (n <= 0 || too_large) ::close(fd);
    if (error) throw_io_error("read", path, error);
    if (too_large)
      throw IoError("cannot read {}: it is larger than the {} bytes such a file may have", path, max_bytes);
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
  }
}

bool file_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool directory_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t file_size(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) throw_io_error("read the size of", path, errno);
  return info.st_size;
}

std::vector<std::string> list_directory(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) throw_io_error("list", path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
    errno = 0;
  }
  if (errno) throw_io_error("list", path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

std::string parent_directory(const std::string& path) {
  size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

void make_directories(const std::string& path) {
  if (path.empty() || directory_exists(path)) return;
  std::string parent = parent_directory(path);
  if (parent != path) make_directories(parent);
  if (operate(Op::takes_space, [&] { return ::mkdir(path.c_str(), 0777); }) == 0) return;
  int error = errno;
  if (error != EEXIST || !directory_exists(path)) throw_io_error("create the directory", path, error);
}

void rename_path(const std::string& from, const std::string& to) {
  if (operate(Op::takes_none, [&] { return ::rename(from.c_str(), to.c_str()); }) != 0)
    throw_io_error("rename " + from + " to", to, errno);
}

bool exchange_paths(const std::string& a, const std::string& b) {
  int r =
      operate(Op::takes_none, [&] { return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE); });
  if (r == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  throw_io_error("exchange " + a + " with", b, errno);
}

std::string renamable_directory(const std::string& path) {
  namespace fs = std::filesystem;
  std::string to = path;
  while (to.size() > 1 && to.back() == '/') to.pop_back();
  if (to.empty() || to == "/") throw ConfigError("\"{}\" is no folder to write to", path);
  const std::string name = to.substr(to.rfind('/') + 1);
  std::error_code error;
  const bool link = fs::is_symlink(to, error);
  if (link || name == "." || name == "..") {
    std::string own = fs::canonical(to, error).string();
    if (error) own = fs::read_symlink(to, error).string();
    throw ConfigError("{} is {}: the folder is renamed into its place at the end, so name it by its own path{}", path,
                      link ? "a link" : "no name", own.empty() ? "" : ", " + own);
  }
  if (fs::exists(to, error) && !directory_exists(to)) throw ConfigError("{} is a file; name a folder", path);
  return to;
}

void remove_file(const std::string& path) { remove_entry(path, false); }

void remove_tree(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return;
    throw_io_error("remove", path, errno);
  }
  bool directory = S_ISDIR(info.st_mode);
  if (directory)
    for (const std::string& name : list_directory(path)) remove_tree(path + "/" + name);
  remove_entry(path, directory);
}

void remove_unfinished(const std::string& path) {
  for (const std::string& name : list_directory(path)) {
    const size_t at = name.rfind(kUnfinished), end = at + kUnfinished.size();
    const bool ours = name.starts_with('.') && at != std::string::npos && end < name.size() &&
                      name.find_first_not_of("0123456789", end) == std::string::npos;
    if (ours && file_exists(path + "/" + name)) remove_file(path + "/" + name);
  }
}

void fsync_directory(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_io_error("open the directory", path, errno);
  int error = operate(Op::takes_none, [&] { return ::fsync(fd); }) != 0 ? errno : 0;
  ::close(fd);
  // File systems that cannot sync a directory say EINVAL; there is nothing better to do on them.
  if (error && error != EINVAL) throw_io_error("fsync the directory", path, error);
}

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  struct stat info;
  fd_ = open_to_read(path_, info);
  size_ = info.st_size;
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

void FileReader::read(int64_t offset, void* to, size_t bytes) const {
  CHECK(offset >= 0);
  const int64_t end = offset + static_cast<int64_t>(bytes);
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    ssize_t n = ::pread(fd_, at, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", path_, errno);
    if (n == 0)
      throw IoError("cannot read {}: it ends at byte {}, and had at least {} before: something has cut it short", path_,
                    offset, end);
    at += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
}

Hash128 FileReader::hash(int64_t offset) const {
  Hasher hasher;
  std::vector<char> piece(kBufferBytes);
  for (; offset < size_; offset += std::ssize(piece)) {
    piece.resize(std::min(piece.size(), static_cast<size_t>(size_ - offset)));
    read(offset, piece.data(), piece.size());
    hasher.update(piece.data(), piece.size());
  }
  return hasher.digest();
}

}  // namespace chiron
