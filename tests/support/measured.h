#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"

namespace chiron::tests {

/// A finished run of the real program, and what it took.
struct Measured {
  int status = 0;  ///< as of waitpid
  std::string text;
  int64_t peak_bytes = 0;  ///< VmHWM
  double seconds = 0;
  double seconds_to_file = 0;  ///< until the awaited file had contents
};

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
    if (fd < 0 || ::dup2(fd, 1) < 0 || ::dup2(fd, 2) < 0) ::_exit(126);
    ::execv(CHIRON_PROGRAM, arguments.data());
    ::_exit(127);
  }
  auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Measured m;
  // The last mark that can be read counts. The kernel's own sum (ru_maxrss) begins with the memory of this process.
  while (::waitpid(pid, &m.status, WNOHANG) == 0) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("VmHWM:")) m.peak_bytes = 1024 * std::stoll(line.substr(6));
    if (!awaited.empty() && m.seconds_to_file == 0 && file_exists(awaited) && !read_file(awaited).empty())
      m.seconds_to_file = seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  m.seconds = seconds();
  m.text = read_file(output);
  return m;
}

}  // namespace chiron::tests
