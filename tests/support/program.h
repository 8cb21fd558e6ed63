#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "io/checkpoint.h"

namespace chiron::tests {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// What became of a program.
struct Outcome {
  int code = 0;      ///< exit code, or minus the signal that ended it
  std::string text;  ///< of both outputs
};

/// The real program, running. Its output goes to the file `log`.
class Process {
 public:
  Process(const Words& words, std::string log) : log_(std::move(log)) {
    std::vector<char*> arguments = {const_cast<char*>(CHIRON_PROGRAM)};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    int fd = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || ::dup2(fd, 1) < 0 || ::dup2(fd, 2) < 0) ::_exit(126);
    ::execv(CHIRON_PROGRAM, arguments.data());
    ::_exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }

  void signal(int number) { ::kill(pid_, number); }
  Outcome wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return {WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), read_file(log_)};
  }

 private:
  std::string log_;
  pid_t pid_ = 0;
};

/// Runs the program to its end. `dir` is where its output may lie meanwhile.
inline Outcome chiron(const std::string& dir, const Words& words) { return Process(words, dir + "/output.txt").wait(); }

/// Waits until f() holds; false after a minute.
template <class F>
bool eventually(F&& f) {
  for (int i = 0; i < 60'000; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// The lines of a run's metrics.jsonl.
inline std::vector<nlohmann::json> metrics_of(const std::string& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// What two runs that did the same have in common: of each step what does not hang on time and machine, and the files
/// of the newest checkpoint, as bytes.
struct Trace {
  std::vector<std::string> steps;
  std::map<std::string, std::string> files;
};

inline Trace trace_of(const std::string& run) {
  Trace trace;
  for (nlohmann::json& line : metrics_of(run)) {
    for (const char* key :
         {"tokens_per_second", "step_seconds", "other_seconds", "data_wait_seconds", "memory_bytes", "time"})
      line.erase(key);
    trace.steps.push_back(line.dump());
  }
  auto newest = newest_checkpoint(run + "/checkpoints");
  if (!newest) return trace;
  Checkpoint whole(newest->path);  // every hash is checked
  for (const std::string& name : list_directory(newest->path)) trace.files[name] = read_file(newest->path + "/" + name);
  return trace;
}

inline void expect_same(const Trace& got, const Trace& want, const std::string& what) {
  EXPECT_EQ(got.steps, want.steps) << what;
  ASSERT_EQ(got.files.size(), want.files.size()) << what;
  for (const auto& [name, bytes] : want.files)
    EXPECT_TRUE(got.files.contains(name) && got.files.at(name) == bytes) << what << ": " << name << " differs";
}

}  // namespace chiron::tests
