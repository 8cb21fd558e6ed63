#pragma once

#include <cstdint>

namespace chiron {

/// This machine's memory, in bytes; 0 where the system does not tell.
struct HostMemory {
  int64_t total = 0, swap = 0;
  int64_t available = 0;  ///< without swapping
  int64_t limit = 0;      ///< of the control group of this process

  /// What this process can have at most.
  int64_t most() const { return limit > 0 && limit < total + swap ? limit : total + swap; }
};

HostMemory host_memory();

}  // namespace chiron
