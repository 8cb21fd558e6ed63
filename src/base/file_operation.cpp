#include "base/file_operation.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/files.h"

namespace chiron {

namespace file_operation {
namespace {

enum class Fate : uint8_t { proceed, fail, crash };

struct Faults {
  std::atomic<int64_t> count{0}, crash_at{0}, fail_at{0};
  std::atomic<int> error{ENOSPC};
  std::atomic<bool> lasting{false};
};
Faults faults;

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

bool write_fully(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = ::write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

/// What shall become of the next operation. On `fail` errno is set.
Fate next_fate(Op op) {
  int64_t n = faults.count.fetch_add(1) + 1;
  int64_t fail_at = faults.fail_at;
  if (n == faults.crash_at) return Fate::crash;
  bool later = faults.lasting && fail_at > 0 && n > fail_at && op == Op::takes_space;
  if (n != fail_at && !later) return Fate::proceed;
  errno = faults.error;
  return Fate::fail;
}

}  // namespace

bool begin(Op op) {
  Fate fate = next_fate(op);
  if (fate == Fate::crash) die();
  return fate == Fate::proceed;
}

bool operate_write(int fd, const char* data, size_t bytes) {
  Fate fate = next_fate(Op::takes_space);
  if (fate == Fate::proceed) return write_fully(fd, data, bytes);
  int error = errno;
  write_fully(fd, data, bytes / 2);
  if (fate == Fate::crash) die();
  errno = error;
  return false;
}

}  // namespace file_operation

void set_file_faults(const FileFaults& f) {
  file_operation::faults.crash_at = f.crash_at;
  file_operation::faults.fail_at = f.fail_at;
  file_operation::faults.error = f.error;
  file_operation::faults.lasting = f.lasting;
  file_operation::faults.count = 0;
}

int64_t file_operations() { return file_operation::faults.count; }

}  // namespace chiron
