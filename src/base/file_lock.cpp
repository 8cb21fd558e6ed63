#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "base/file_operation.h"
#include "base/files.h"

namespace chiron {

using file_operation::Op, file_operation::operate, file_operation::operate_write;

bool FileLock::in_place() const {
  struct stat held, there;
  return ::fstat(fd_, &held) == 0 && ::stat(path_.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

bool FileLock::take(const std::string& path, bool wait) {
  path_ = path;
  int result;
  for (;;) {
    fd_ = operate(Op::takes_space, [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
    if (fd_ < 0) throw_io_error("create the lock", path, errno);
    do result = ::flock(fd_, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result != 0 || in_place()) break;
    ::close(std::exchange(fd_, -1));  // its owner has removed it meanwhile
  }
  if (result == 0) {
    // Who holds the lock is only told to others: a full disk must not keep anybody from taking it.
    std::string pid = fmt::format("{}\n", getpid());
    if (operate(Op::takes_none, [&] { return ::ftruncate(fd_, 0); }) == 0) operate_write(fd_, pid.data(), pid.size());
    return true;
  }
  int error = errno;
  ::close(std::exchange(fd_, -1));
  if (error != EWOULDBLOCK) throw_io_error("lock", path, error);
  return false;
}

FileLock::FileLock(const std::string& path) {
  if (take(path, false)) return;
  std::string holder;
  try {
    holder = read_file(path, 64);
  } catch (const IoError&) {  // gone meanwhile
  }
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  throw IoError("{} is locked by {}: only one process at a time may work here; wait for it or stop it", path,
                holder.empty() ? "another process" : "process " + holder);
}

FileLock FileLock::wait(const std::string& path) {
  FileLock lock;
  CHECK(lock.take(path, true));
  return lock;
}

std::optional<FileLock> FileLock::attempt(const std::string& path) {
  FileLock lock;
  if (!lock.take(path, false)) return std::nullopt;
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

}  // namespace chiron
