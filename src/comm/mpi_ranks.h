#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/tcp_store.h"

namespace chiron {

struct MpiRankOptions {
  int rank = 0, world = 1;                     ///< as the launcher said: MPI must say the same
  std::chrono::milliseconds timeout{600'000};  ///< of one call
  /// Of the buffer through which sums go. Two ranks take 2 MiB from each other at once.
  int64_t scratch_bytes = int64_t{4} << 20;
  TcpStore* store = nullptr;  ///< tells of ranks that failed and tells them; outlives the group. Null: nobody does
};

/// The world of the processes that mpirun started: opens libchiron_mpi.so and starts MPI, once in a process's life. MPI
/// ends with the world, which therefore outlives all groups; but not if it goes by an exception: the process is then to
/// end with an exit code, at which mpirun ends the others. ConfigError if there is no MPI here, saying why.
std::unique_ptr<Communicator> open_mpi_ranks(const MpiRankOptions& options);

/// Empty if MPI can be opened, else what is missing.
std::string why_no_mpi();

}  // namespace chiron
