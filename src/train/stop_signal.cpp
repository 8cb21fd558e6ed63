#include "train/stop_signal.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace chiron {
namespace {

// A handler can reach nothing but statics.
volatile std::sig_atomic_t stop_requested = 0;
std::string_view stop_answer;

/// Calls what POSIX lists as safe in a handler: signal, raise, write.
void note(int signal) {
  if (stop_requested) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_requested = 1;
  const int error = errno;
  (void)!::write(STDERR_FILENO, stop_answer.data(), stop_answer.size());
  errno = error;
}

constexpr std::initializer_list<int> kSignals = {SIGINT, SIGTERM, SIGUSR1};

}  // namespace

StopSignal::StopSignal(std::string_view answer) {
  stop_requested = 0;
  stop_answer = answer;
  for (int signal : kSignals) std::signal(signal, note);
}

StopSignal::~StopSignal() {
  for (int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool StopSignal::requested() const { return stop_requested != 0; }

}  // namespace chiron
