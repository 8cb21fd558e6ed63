#include "comm/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace chiron {
namespace {

constexpr int kDefaultPort = 29500;
constexpr int kManyPorts = 8;

/// Reads numbers and texts of the environment and remembers which it used.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return text(name) != nullptr; }
  std::string get(const std::string& name, const std::string& otherwise = {}) const {
    const std::string* value = text(name);
    return value ? *value : otherwise;
  }
  std::optional<int> number(const std::string& name) const {
    const std::string* value = text(name);
    if (!value) return std::nullopt;
    int n = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), n);
    if (error != std::errc() || end != value->data() + value->size() || n < 0)
      throw ConfigError("the environment's {}={} is no whole number from 0 to 2147483647", name, *value);
    return n;
  }
  /// The first of the names that is set.
  std::optional<int> number_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (auto n = number(name)) return n;
    return std::nullopt;
  }

 private:
  const std::string* text(const std::string& name) const {
    auto at = environment_.find(name);
    return at == environment_.end() || at->second.empty() ? nullptr : &at->second;
  }
  const Environment& environment_;
};

/// What one launcher's variables say. `rank` and `world` name theirs.
struct Found {
  RankInfo info;
  std::string rank, world;
};

std::string name_of(Launcher launcher) {
  static constexpr const char* kNames[] = {
      "nothing", "flags", "chiron launch", "torchrun", "Open MPI", "hydra (MPICH, Intel MPI)", "Slurm", "Kubeflow"};
  return kNames[static_cast<size_t>(launcher)];
}

/// The numbers of one launcher; nothing if neither rank nor world is set. `nodes` of equal size are assumed where the
/// launcher does not tell.
std::optional<Found> read(const Reader& env, Launcher launcher, const char* rank, const char* world,
                          std::initializer_list<const char*> local_rank, std::initializer_list<const char*> local_world,
                          const char* node) {
  const std::optional<int> r = env.number(rank), w = env.number(world);
  if (!r && !w) return std::nullopt;
  if (!r || !w)
    throw ConfigError("{} sets {} but not {}: a rank needs both; without ranks, unset it", name_of(launcher),
                      r ? rank : world, r ? world : rank);
  Found found{.rank = rank, .world = world};
  RankInfo& i = found.info;
  i.launcher = launcher;
  i.rank = *r;
  i.world = *w;
  const auto lr = env.number_of(local_rank), lw = env.number_of(local_world);
  if (i.world < 1 || i.rank >= i.world)
    throw ConfigError("{} says {}={} and {}={}: ranks are from 0 to the number of ranks less one", name_of(launcher),
                      rank, i.rank, world, i.world);
  // Neither: each rank has a node of its own (a pod).
  i.local_rank = lr.value_or(0);
  i.local_world = lw.value_or(lr ? std::max(1, *lr + 1) : 1);
  if (i.local_rank >= i.local_world || i.local_world > i.world)
    throw ConfigError("{} says local rank {} of {} on this node, of {} ranks in all: that cannot be", name_of(launcher),
                      i.local_rank, i.local_world, i.world);
  i.node = env.number(node).value_or((i.rank - i.local_rank) / i.local_world);
  i.why = fmt::format("{}={} and {}={}", rank, i.rank, world, i.world);
  return found;
}

std::optional<Found> read_torchrun(const Reader& env) {
  auto found = read(env, Launcher::torchrun, "RANK", "WORLD_SIZE", {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, "GROUP_RANK");
  if (!found) return found;
  RankInfo& i = found->info;
  i.job = fmt::format("torchrun {} {}", env.get("TORCHELASTIC_RUN_ID"), env.get("TORCHELASTIC_RESTART_COUNT"));
  if (env.has("TORCHELASTIC_RUN_ID") || env.has("LOCAL_RANK")) return found;
  // One rank for each pod, as Kubeflow's PyTorchJob has it.
  i.launcher = Launcher::kubeflow;
  i.node = i.rank;
  if (const std::string n = env.get("PET_NPROC_PER_NODE", "1"); n != "1")
    throw ConfigError(
        "RANK={} and WORLD_SIZE={} are set but no LOCAL_RANK, and PET_NPROC_PER_NODE={} asks for more "
        "than one rank a pod: start the pod with `chiron launch -- train ...`",
        i.rank, i.world, n);
  return found;
}

std::optional<Found> read_slurm(const Reader& env, std::string& set_aside) {
  if (!env.has("SLURM_JOB_ID") && !env.has("SLURM_PROCID")) return std::nullopt;
  // Shells have Slurm's variables too: a batch script, salloc, srun --pty. What runs in them was started once.
  constexpr int64_t kFirstShellStep = 4294967290;  // ids of steps that srun did not start (slurm.h)
  const std::string step = env.get("SLURM_STEP_ID", env.get("SLURM_STEPID"));
  const bool by_srun = !step.empty() || env.has("SLURM_STEP_NUM_TASKS") || env.has("SLURM_LAUNCH_NODE_IPADDR") ||
                       env.get("SLURM_PROCID", "0") != "0";
  const bool shell = env.has("SLURM_PTY_PORT") || (!step.empty() && std::atoll(step.c_str()) >= kFirstShellStep);
  if (!env.has("SLURM_PROCID") || !by_srun || shell) {
    set_aside = "Slurm's variables are those of a shell, in which a program starts once; srun starts ranks";
    return std::nullopt;
  }
  // SLURM_NTASKS is what the allocation was asked for; a step may have fewer.
  const char* world = env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  auto found = read(env, Launcher::slurm, "SLURM_PROCID", world, {"SLURM_LOCALID"}, {}, "SLURM_NODEID");
  if (!found) return found;
  RankInfo& i = found->info;
  // "4", "4(x2),3": tasks of each node, in order; else what was asked for each node, which the last one need not have.
  std::string per_node = env.get("SLURM_STEP_TASKS_PER_NODE", env.get("SLURM_TASKS_PER_NODE"));
  if (per_node.empty()) per_node = env.get("SLURM_NTASKS_PER_NODE");
  int node = 0;
  for (size_t at = 0; at < per_node.size() && node <= i.node;) {
    const int tasks = std::atoi(per_node.c_str() + at);
    const size_t end = std::min(per_node.find(',', at), per_node.size()), times = per_node.find("(x", at);
    node += times < end ? std::atoi(per_node.c_str() + times + 2) : 1;
    i.local_world = std::clamp(tasks, i.local_rank + 1, i.world);
    at = end + 1;
  }
  i.job = fmt::format("slurm {} {} {}", env.get("SLURM_JOB_ID"), step, env.get("SLURM_RESTART_COUNT"));
  if (const std::string list = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST")); !list.empty())
    i.address = first_host(list);
  else
    i.address = env.get("SLURM_LAUNCH_NODE_IPADDR");
  return found;
}

std::optional<Found> read_kubeflow(const Reader& env) {
  // A TrainJob sets these once for each pod.
  const std::optional<int> nodes = env.number("PET_NNODES");
  if (!nodes || (*nodes == 1 && env.get("PET_NPROC_PER_NODE", "1") == "1")) return std::nullopt;
  if (const std::string n = env.get("PET_NPROC_PER_NODE", "1"); n != "1")
    throw ConfigError(
        "PET_NNODES={} and PET_NPROC_PER_NODE={} ask for several ranks on each node, but this is one "
        "process: start it with `chiron launch -- train ...`, which reads them",
        *nodes, n);
  return read(env, Launcher::kubeflow, "PET_NODE_RANK", "PET_NNODES", {}, {}, "PET_NODE_RANK");
}

/// Where rank 0 listens, by --rdzv, our own variables, or what the launcher says.
void find_address(const Reader& env, const RankFlags& flags, RankInfo& i) {
  if (i.job.empty()) i.job = env.get("CHIRON_JOB");
  const std::string pet = env.get("PET_MASTER_ADDR"), master = env.get("MASTER_ADDR", pet);
  const std::string given = flags.rendezvous.empty() ? env.get("CHIRON_RDZV") : flags.rendezvous;
  if (!given.empty()) {
    std::tie(i.address, i.port) = split_address(given, flags.rendezvous.empty() ? "CHIRON_RDZV" : "--rdzv");
    return;
  }
  const std::optional<int> own_port = env.number("CHIRON_RDZV_PORT");
  const std::optional<int> port = env.number_of({"MASTER_PORT", "PET_MASTER_PORT"});
  if (!master.empty()) i.address = master;
  if (i.address.empty() && i.local_world == i.world) i.address = "127.0.0.1";
  if (i.address.empty())
    throw ConfigError(
        "{} started {} ranks on several nodes but does not say where rank 0 is: give its address, "
        "CHIRON_RDZV=host:port, or MASTER_ADDR in the environment of every rank",
        name_of(i.launcher), i.world);
  if (own_port) {
    i.port = *own_port;
    return;
  }
  i.num_ports = kManyPorts;
  if (port && env.get("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    // torchrun's own store has MASTER_PORT already.
    i.port = *port + 1;
  } else if (port) {
    i.port = *port;
    i.num_ports = 1;
  } else {
    // Starts on one machine at one time do not know of each other: each begins elsewhere.
    i.port = i.job.empty() ? kDefaultPort : 20000 + static_cast<int>(hash128(i.job).low % 1500) * kManyPorts;
  }
}

}  // namespace

Environment process_environment() {
  Environment out;
  for (char** at = environ; *at; ++at) {
    const std::string_view line(*at);
    if (const size_t equals = line.find('='); equals != std::string_view::npos)
      out.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return out;
}

std::string RankInfo::str() const {
  std::string text;
  if (world == 1) {
    text = "one process";
  } else {
    text = fmt::format("rank {} of {} (local rank {} of {}, node {}), started by {}", rank, world, local_rank,
                       local_world, node, name_of(launcher));
  }
  if (!why.empty()) text += ": " + why;
  if (world > 1) text += fmt::format("; ranks meet at {}:{}", address, port);
  return text;
}

RankInfo find_ranks(const Environment& environment, const RankFlags& flags) {
  // Flags are read as an environment of their own, so that one set of checks serves both.
  Environment said;
  auto say = [&](const char* name, std::optional<int> value) {
    if (value) said[name] = std::to_string(*value);
  };
  say("--rank", flags.rank);
  say("--world", flags.world);
  say("--local-rank", flags.local_rank);
  say("--local-world", flags.local_world);
  say("--node-rank", flags.node);
  const Reader env(environment), by_flags(said);
  std::string set_aside;
  std::vector<Found> all;
  auto add = [&](std::optional<Found> found) {
    if (found) all.push_back(std::move(*found));
  };
  add(read(by_flags, Launcher::flags, "--rank", "--world", {"--local-rank"}, {"--local-world"}, "--node-rank"));
  if (all.empty()) {
    add(read(env, Launcher::own, "CHIRON_RANK", "CHIRON_WORLD_SIZE", {"CHIRON_LOCAL_RANK"}, {"CHIRON_LOCAL_WORLD_SIZE"},
             "CHIRON_NODE_RANK"));
    add(read_torchrun(env));
    // OMPI_COMM_WORLD_NODE_RANK is the rank within a node, so nodes are counted from the local size.
    add(read(env, Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_LOCAL_RANK"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE"}, ""));
    if (!all.empty() && all.back().info.launcher == Launcher::open_mpi) {
      all.back().info.job = "mpirun " + env.get("PMIX_NAMESPACE", env.get("OMPI_MCA_ess_base_jobid"));
      all.back().info.bound_by_default = !env.has("OMPI_MCA_hwloc_base_binding_policy");
    } else {
      add(read(env, Launcher::hydra, "PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}, ""));
    }
    add(read_slurm(env, set_aside));
    add(read_kubeflow(env));
  }
  // One that speaks of a single rank yields to a later one that started several, unless torchrun itself says so.
  size_t chosen = all.size();
  for (size_t k = 0; k < all.size(); ++k) {
    if (chosen == all.size()) chosen = k;
    if (all[chosen].info.world > 1 || env.has("TORCHELASTIC_RUN_ID")) break;
    if (all[k].info.world > 1) chosen = k;
  }
  RankInfo info;
  if (chosen < all.size()) info = all[chosen].info;
  for (size_t k = 0; k < all.size(); ++k)
    if (k != chosen && all[k].info.world != info.world)
      set_aside += fmt::format("{}{}={} of {} is set aside", set_aside.empty() ? "" : "; ", all[k].world,
                               all[k].info.world, name_of(all[k].info.launcher));
  if (!set_aside.empty()) info.why += (info.why.empty() ? "" : "; ") + set_aside;
  if (info.world > 1) find_address(env, flags, info);
  return info;
}

std::string first_host(const std::string& list) {
  auto malformed = [&] {
    return ConfigError("Slurm's list of nodes is {}: a name, or names with [numbers], such as node[01-16], are needed",
                       list);
  };
  const size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end != std::string::npos && list[end] == '[') {
    const size_t close = list.find(']', end);
    if (close == std::string::npos) throw malformed();
    const std::string inside = list.substr(end + 1, close - end - 1),
                      first = inside.substr(0, inside.find_first_of(",-"));
    const size_t rest = std::min(list.find(',', close), list.size());
    if (first.empty() || first.find_first_not_of("0123456789") != std::string::npos) throw malformed();
    const std::string after = list.substr(close + 1, rest - close - 1);
    host += first;
    // rack[1-2]node[3-4]: the rest is such a list again.
    if (!after.empty()) host += after.front() == '[' ? first_host("x" + after).substr(1) : first_host(after);
  }
  if (host.empty()) throw malformed();
  return host;
}

std::pair<std::string, int> split_address(const std::string& text, const std::string& what) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  int port = 0;
  const char* begin = text.c_str() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* stop = text.c_str() + text.size();
  const auto [end, error] = std::from_chars(begin, stop, port);
  if (colon == std::string::npos || host.empty() || error != std::errc() || end != stop || port < 1 || port > 65535 ||
      (!bracketed && host.find(':') != std::string::npos))
    throw ConfigError("{} is {}: write host:port, or [address]:port for IPv6, with a port from 1 to 65535", what, text);
  return {host, port};
}

}  // namespace chiron
