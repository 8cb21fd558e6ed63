#pragma once

#include <chrono>
#include <cstdint>
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
  int64_t scratch_bytes = int64_t{4} << 20;  ///< of the buffer that sums go through, as in MpiRankOptions
  bool join = true;                          ///< false: the ranks meet and compare, and World::comm stays absent
  bool bind_cores = true;                    ///< each rank to its share of the cores that its node gives
};

/// All processes of this run, joined: one process alone, or ranks that met at the store and are joined by MPI. When it
/// goes in the ordinary way, the others may go on to their own end; when it goes by an exception, they are told that
/// this rank has failed: say why before, by store->fail().
struct World {
  RankInfo ranks;
  std::unique_ptr<TcpStore> store;  ///< absent with one process
  std::unique_ptr<Communicator> comm;
  int cores = 0;         ///< of this rank
  std::string topology;  ///< "4 ranks on 2 nodes, 2 on a and 2 on b; 2 cores a rank"

  World() = default;
  World(World&&) = default;
  ~World();
};

/// Meets the other ranks, compares what they are, binds this one to its cores and joins them. Cores are bound before
/// MPI starts: make thread pools after this. ConfigError for ranks that no MPI can join, after they met; a
/// Told error where another rank says why.
World open_ranks(RankInfo ranks, const OpenOptions& options);

/// This rank's share of the cores that the ranks of its node may use, whose numbers are given: neighbours, and as many
/// as the others have, but for one; with more ranks than cores, one that several share.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

/// "0-3,8": lists of cores as Linux writes them, and back.
std::string cores_text(const std::vector<int>& cores);
std::vector<int> parse_cores(const std::string& text);

}  // namespace chiron
