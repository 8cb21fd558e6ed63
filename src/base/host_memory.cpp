#include "base/host_memory.h"

#include <fstream>
#include <string>

namespace chiron {

HostMemory host_memory() {
  HostMemory m;
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (int64_t kib = 0; in >> key >> kib && std::getline(in, unit);) {
    if (key == "MemTotal:") m.total = 1024 * kib;
    if (key == "MemAvailable:") m.available = 1024 * kib;
    if (key == "SwapTotal:") m.swap = 1024 * kib;
  }
  std::ifstream("/sys/fs/cgroup/memory.max") >> m.limit;  // "max" leaves it at 0
  return m;
}

}  // namespace chiron
