#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace chiron {

enum class Launcher : uint8_t { single, flags, own, torchrun, open_mpi, hydra, slurm, kubeflow };

/// What the environment of a process says; a map, so that tests need no other processes.
using Environment = std::map<std::string, std::string>;
/// Of this process.
Environment process_environment();

/// What the command line says of ranks; absent: not said.
struct RankFlags {
  std::optional<int> rank, world, local_rank, local_world, node;
  std::string rendezvous;  ///< "host:port", "[ipv6]:port"
};

/// Who this process is among those that were started together.
struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  ///< on its node
  int node = 0;
  std::string address;  ///< where rank 0 listens; empty with one rank
  int port = 0;
  int num_ports = 1;  ///< port, port + 1, ... are tried: more than one where the port was not chosen by the user
  std::string job;    ///< equal for the ranks of one start, and unlikely to be another's
  Launcher launcher = Launcher::single;
  /// The launcher bound each rank to cores by a default of its own, which nobody asked for.
  bool bound_by_default = false;
  std::string why;  ///< which variables or flags said so, and which others were set aside

  /// Whether MPI can join these processes.
  bool has_mpi() const { return launcher == Launcher::open_mpi || launcher == Launcher::hydra; }
  /// "rank 3 of 8 (local 1 of 2 on node 1), started by torchrun: RANK, WORLD_SIZE; rendezvous at host0:29500"
  std::string str() const;
};

/// Rank discovery: flags, then our own CHIRON_* variables, torchrun's, Open MPI's, hydra's (MPICH, Intel MPI), Slurm's,
/// Kubeflow's PET_*; else one process. The first that speaks of more than one rank wins, and `why` names the others.
/// ConfigError, naming variable and value, if what it says cannot be.
RankInfo find_ranks(const Environment& environment, const RankFlags& flags = {});

/// "tux[1-3,07],gpu" -> tux1 tux2 tux3 tux07 gpu: the first host of Slurm's list. ConfigError if it is malformed.
std::string first_host(const std::string& slurm_list);

/// Splits "host:port" or "[ipv6]:port". ConfigError names `what` it is the value of.
std::pair<std::string, int> split_address(const std::string& text, const std::string& what);

}  // namespace chiron
