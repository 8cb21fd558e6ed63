#pragma once

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "support/sanitized.h"

namespace chiron::tests {

/// A finished run of the real program, and what it took.
struct Measured {
  int status = 0;  ///< as of waitpid
  std::string text;
  int64_t peak_bytes = 0;  ///< VmHWM at the end
  double seconds = 0;
  double seconds_to_file = 0;  ///< until the awaited file had contents
};

/// VmHWM of a process.
inline int64_t high_water(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  return 0;
}

/// Runs the program; both of its outputs go to the file `output`. `awaited`: a file that it writes.
inline Measured measure(const std::vector<std::string>& words, const std::string& output,
                        const std::string& awaited = "") {
  using Clock = std::chrono::steady_clock;
  std::vector<char*> arguments = {const_cast<char*>(CHIRON_PROGRAM)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto start = Clock::now();
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    if (fd < 0 || ::dup2(fd, 1) < 0 || ::dup2(fd, 2) < 0) ::_exit(126);
    ::execv(CHIRON_PROGRAM, arguments.data());
    ::_exit(127);
  }
  auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Measured m;
  // The program stops when it is about to end, and its high-water mark is read. The kernel's own account of a child
  // (ru_maxrss) begins with the memory of its parent.
  for (bool started = false;;) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      if (!WIFSTOPPED(status)) {
        m.status = status;
        break;
      }
      if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) m.peak_bytes = high_water(pid);
      if (!started) CHECK(::ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACEEXIT) == 0);
      started = true;
      const long signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
      ::ptrace(PTRACE_CONT, pid, nullptr, signal);
    }
    if (!awaited.empty() && m.seconds_to_file == 0 && file_exists(awaited) && !read_file(awaited).empty())
      m.seconds_to_file = seconds();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  m.seconds = seconds();
  m.text = read_file(output);
  return m;
}

}  // namespace chiron::tests
