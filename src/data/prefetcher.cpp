#include "data/prefetcher.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace chiron {

Prefetcher::Prefetcher(const Loader& loader, int64_t first_step, int64_t ahead)
    : loader_(loader), base_(first_step), next_(first_step) {
  CHECK(ahead >= 1 && first_step >= 0, "{} steps ahead from step {}", ahead, first_step);
  buffers_.resize(static_cast<size_t>(ahead) + 1);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw DeviceError("the thread that reads data could not be started: {}; set run.threads lower", e.code().message());
  }
}

Prefetcher::~Prefetcher() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const HostStep& Prefetcher::at(int64_t step) {
  CHECK(step >= 0 && step < loader_.num_steps(), "step {} of {}", step, loader_.num_steps());
  std::unique_lock lock(mutex_);
  if (step < base_ || step > next_) {
    next_ = step;
    error_ = nullptr;
    ++jumps_;
  }
  base_ = step;
  changed_.notify_all();
  if (next_ == step && !error_) {
    auto begin = std::chrono::steady_clock::now();
    changed_.wait(lock, [&] { return next_ > step || error_; });
    seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // Once told, an error is forgotten: the next call for this step tries again.
  if (next_ == step) {
    std::exception_ptr error = std::exchange(error_, nullptr);
    changed_.notify_all();
    std::rethrow_exception(error);
  }
  return buffer(step);
}

void Prefetcher::run() {
  std::unique_lock lock(mutex_);
  auto limit = [&] { return std::min(base_ + static_cast<int64_t>(buffers_.size()), loader_.num_steps()); };
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || (!error_ && next_ < limit()); });
    if (stop_) return;
    int64_t step = next_, jumps = jumps_;
    lock.unlock();
    std::exception_ptr error;
    try {
      loader_.fill(step, buffer(step));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (jumps != jumps_) continue;  // filled for nothing: the caller is elsewhere
    if (error)
      error_ = error;
    else
      ++next_;
    changed_.notify_all();
  }
}

}  // namespace chiron
