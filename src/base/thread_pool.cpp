#include "base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace chiron {

int num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

struct ThreadPool::State {
  // A job is announced by an odd-to-even step of `round`. Workers spin for a moment before they sleep, since the next
  // op of a training step follows within microseconds and a wake-up costs tens of them.
  static constexpr int kSpins = 4000;

  std::mutex mutex;
  std::condition_variable wake, finished;
  std::atomic<uint64_t> round{0};
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  int64_t parts = 0;
  Job job = nullptr;
  void* context = nullptr;
  std::exception_ptr error;
  bool stop = false;
  std::vector<std::jthread> threads;

  ~State() {
    {
      std::lock_guard lock(mutex);
      stop = true;
      round.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }

  void take_parts() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
      try {
        job(context, i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && round.load(std::memory_order_acquire) == seen; ++i) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return round.load(std::memory_order_relaxed) != seen; });
        seen = round.load(std::memory_order_relaxed);
        if (stop) return;
      }
      take_parts();
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard lock(mutex);
        finished.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  int n = threads > 0 ? threads : num_cores();
  try {
    for (int i = 1; i < n; ++i) state_->threads.emplace_back([s = state_.get()] { s->work(); });
  } catch (const std::system_error& e) {
    throw DeviceError("only {} of {} threads could be started: {}; set run.threads (or --threads) lower", size(), n,
                      e.code().message());
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run(int64_t parts, Job job, void* context) {
  State& s = *state_;
  if (parts <= 1 || s.threads.empty()) {
    for (int64_t i = 0; i < parts; ++i) job(context, i);
    return;
  }
  {
    std::lock_guard lock(s.mutex);
    CHECK(s.busy.load() == 0, "a job was started inside another");
    s.parts = parts;
    s.job = job;
    s.context = context;
    s.next.store(0, std::memory_order_relaxed);
    s.busy.store(static_cast<int>(s.threads.size()), std::memory_order_relaxed);
    s.round.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.take_parts();
  for (int i = 0; i < State::kSpins && s.busy.load(std::memory_order_acquire) != 0; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  std::unique_lock lock(s.mutex);
  s.finished.wait(lock, [&] { return s.busy.load(std::memory_order_acquire) == 0; });
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace chiron
