#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/ranks.h"
#include "comm/tcp_store.h"

namespace chiron {

struct OpenOptions {
  std::chrono::milliseconds meet_timeout{60'000};   ///< for all ranks to meet
  std::chrono::milliseconds call_timeout{600'000};  ///< of one collective: how long the slowest rank may take
  /// What must be the same on every rank: build, GPU vendor, hash of the configuration.
  std::vector<std::pair<std::string, std::string>> identity;
  bool bind_cores = true;  ///< each rank to its share of the cores that its node gives
};

/// All processes of this run, joined: one process alone, or ranks that met at the store and are joined by MPI.
struct World {
  RankInfo ranks;
  std::unique_ptr<TcpStore> store;     ///< absent with one process
  std::unique_ptr<Communicator> comm;  ///< goes before the store
  int cores = 0;                       ///< of this rank
  std::string topology;                ///< "2 nodes (a, b), 4 ranks: 2 on each; 2 cores a rank"
};

/// Meets the other ranks, compares what they are, binds this one to its cores and joins them. Cores are bound before
/// MPI starts: make thread pools after this. ConfigError for ranks that no MPI can join, after they met.
World open_ranks(RankInfo ranks, const OpenOptions& options);

/// This rank's share of `cores` (numbers of those that the node gives): neighbours, equal but for one.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

}  // namespace chiron
