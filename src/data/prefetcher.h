#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "data/loader.h"

namespace chiron {

/// A thread that fills steps ahead of the one in use. One caller at a time.
class Prefetcher {
 public:
  /// Starts filling at `first_step`, at most `ahead` (>= 1) steps ahead of the caller. The loader outlives this.
  /// DeviceError if the system starts no thread.
  explicit Prefetcher(const Loader& loader, int64_t first_step = 0, int64_t ahead = 1);
  /// Waits for the step being filled, and stops.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The data of a step; valid until the next call. Steps in order come ready, any other one is filled from there on.
  /// An error of the loader for this step is thrown here.
  const HostStep& at(int64_t step);
  /// How long at() has waited for data so far.
  double seconds_waited() const { return seconds_waited_; }

 private:
  void run();
  HostStep& buffer(int64_t step) { return buffers_[static_cast<size_t>(step) % buffers_.size()]; }

  const Loader& loader_;
  std::vector<HostStep> buffers_;  // step n lies in n % size
  double seconds_waited_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t base_, next_;       // steps base_ .. next_-1 are filled; the thread is at next_
  int64_t jumps_ = 0;         // how often the caller left the order
  std::exception_ptr error_;  // of step next_
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace chiron
