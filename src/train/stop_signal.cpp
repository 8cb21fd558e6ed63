#include "train/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace chiron {
namespace {

// A handler can reach nothing but statics.
volatile std::sig_atomic_t stop_requested = 0;

void note(int signal) {
  if (stop_requested) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_requested = 1;
}

constexpr std::initializer_list<int> kSignals = {SIGINT, SIGTERM};

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  for (int signal : kSignals) std::signal(signal, note);
}

StopSignal::~StopSignal() {
  for (int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool StopSignal::requested() const { return stop_requested != 0; }

}  // namespace chiron
