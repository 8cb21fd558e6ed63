#pragma once

#include <cstdint>
#include <memory>

namespace chiron {

/// A fixed set of threads for elementwise work and products; each rank has one. The caller is one of the threads, so a
/// pool of one starts none. One job at a time; jobs do not nest.
class ThreadPool {
 public:
  /// threads >= 1; 0 means one per core that this process may run on. DeviceError if the system starts no more.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  using Job = void (*)(void* context, int64_t part);
  /// Runs job(context, 0 .. parts-1), each part once, on any thread, and returns when all are done. An exception of a
  /// part is rethrown here (the first one; the other parts still run).
  void run(int64_t parts, Job job, void* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Cores this process may run on (its affinity mask), at least 1.
int num_cores();

}  // namespace chiron
