#include "comm/open_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>

#include "base/error.h"
#include "comm/mpi_ranks.h"

namespace chiron {
namespace {

constexpr int kMostCores = CPU_SETSIZE;

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int c = 0; c < kMostCores; ++c)
    if (CPU_ISSET(c, &set)) cores.push_back(c);
  return cores;
}

/// What the system refuses stays as it was.
void bind_to(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int c : cores) CPU_SET(c, &set);
  [[maybe_unused]] const int error = ::sched_setaffinity(0, sizeof set, &set);
}

/// Undoes a binding; of all cores, the system keeps those that this process is allowed.
void unbind() {
  std::vector<int> all(kMostCores);
  for (int c = 0; c < kMostCores; ++c) all[static_cast<size_t>(c)] = c;
  bind_to(all);
}

std::string host_name() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// What each rank tells of itself: its node and the cores that it may use, by a line break.
struct Place {
  std::string host;
  std::vector<int> cores;
};
Place place_of(const std::string& note) {
  const size_t line = note.find('\n');
  return {note.substr(0, line), parse_cores(note.substr(line + 1))};
}

/// The cores that this rank is to have: those that a launcher chose for it alone, or a share of what all have.
std::vector<int> cores_of(const std::vector<Place>& places, int rank) {
  const Place& me = places[static_cast<size_t>(rank)];
  std::set<int> of_node;
  size_t counted = 0;
  int local_rank = 0, local_world = 0;
  for (size_t k = 0; k < places.size(); ++k) {
    if (places[k].host != me.host) continue;
    of_node.insert(places[k].cores.begin(), places[k].cores.end());
    counted += places[k].cores.size();
    local_rank += static_cast<int>(k) < rank;
    ++local_world;
  }
  if (counted == of_node.size()) return me.cores;
  return share_of_cores({of_node.begin(), of_node.end()}, local_rank, local_world);
}

std::string topology_text(const std::vector<Place>& places, size_t cores) {
  std::vector<std::pair<std::string, int>> nodes;
  for (const Place& p : places) {
    auto at = std::ranges::find(nodes, p.host, &std::pair<std::string, int>::first);
    if (at == nodes.end()) at = nodes.insert(at, {p.host, 0});
    ++at->second;
  }
  std::vector<std::string> parts;
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(kShown, nodes.size()); ++i)
    parts.push_back(fmt::format("{} on {}", nodes[i].second, nodes[i].first));
  if (nodes.size() > kShown) parts.emplace_back("...");
  return fmt::format("{} ranks on {} node{}, {}; {} core{} for this rank", places.size(), nodes.size(),
                     nodes.size() == 1 ? "" : "s", fmt::join(parts, ", "), cores, cores == 1 ? "" : "s");
}

}  // namespace

World::~World() {
  const bool failed = std::uncaught_exceptions() > 0;
  comm.reset();
  if (store && !failed) store->leave();
}

World open_ranks(RankInfo ranks, const OpenOptions& options) {
  World world;
  world.ranks = std::move(ranks);
  const RankInfo& r = world.ranks;
  if (r.world == 1) {
    world.cores = static_cast<int>(usable_cores().size());
    world.topology = fmt::format("one process, {} core{}", world.cores, world.cores == 1 ? "" : "s");
    world.comm = std::make_unique<SelfCommunicator>();
    return world;
  }
  if (options.bind_cores && r.bound_by_default) unbind();
  world.store = std::make_unique<TcpStore>(StoreOptions{.address = r.address,
                                                        .port = r.port,
                                                        .num_ports = r.num_ports,
                                                        .rank = r.rank,
                                                        .world = r.world,
                                                        .job = r.job,
                                                        .timeout = options.meet_timeout,
                                                        .identity = options.identity,
                                                        .note = host_name() + "\n" + cores_text(usable_cores())});
  std::vector<Place> places;
  for (const std::string& note : world.store->notes()) places.push_back(place_of(note));
  if (options.bind_cores) bind_to(cores_of(places, r.rank));
  world.cores = static_cast<int>(usable_cores().size());
  world.topology = topology_text(places, usable_cores().size());

  if (!options.join) return world;
  // All know this alike, so none waits for another.
  std::string why;
  if (!r.has_mpi()) why = "these were not started by mpirun";
  if (why.empty()) why = why_no_mpi();
  if (!why.empty()) {
    world.store->leave();
    const std::string text = fmt::format(
        "{} ranks met at {}:{}, but CPU ranks are joined by MPI, and {}; start them by `mpirun -n {} "
        "chiron train ...`, or by `chiron launch --nproc {} -- train ...`, which does that",
        r.world, r.address, world.store->port(), why, r.world, r.local_world);
    if (r.rank == 0) throw ConfigError("{}", text);
    throw Told<ConfigError>("{}", text);
  }
  world.comm = open_mpi_ranks({.rank = r.rank,
                               .world = r.world,
                               .timeout = options.call_timeout,
                               .scratch_bytes = options.scratch_bytes,
                               .store = world.store.get()});
  return world;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world) {
  const auto n = static_cast<int64_t>(cores.size());
  if (n == 0) return {};
  if (n < local_world) return {cores[static_cast<size_t>(local_rank % n)]};
  const auto begin = cores.begin() + n * local_rank / local_world,
             end = cores.begin() + n * (local_rank + 1) / local_world;
  return {begin, end};
}

std::string cores_text(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (end - i > 1) text += fmt::format("-{}", cores[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> parse_cores(const std::string& text) {
  std::vector<int> cores;
  for (const char* at = text.c_str(); *at;) {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long c = first; c <= std::min<long>(last, kMostCores - 1); ++c) cores.push_back(static_cast<int>(c));
    at = *end == ',' ? end + 1 : "";
  }
  return cores;
}

}  // namespace chiron
