#include "cli/joined_ranks.h"

#include <algorithm>
#include <new>

namespace chiron::cli {

OpenOptions meeting(const Options& options, const std::string& wrong) {
  const auto seconds = std::chrono::seconds(options.parallel.timeout);
  OpenOptions open{.meet_timeout = std::min<std::chrono::seconds>(seconds, std::chrono::seconds(60)),
                   .call_timeout = seconds,
                   .identity = {{"version", CHIRON_VERSION},
                                {"GPU back end", CHIRON_GPU_BACKEND},
                                {"error in the configuration", wrong.empty() ? "none" : wrong}}};
  if (wrong.empty())
    for (auto& value : values(options)) open.identity.push_back(std::move(value));
  return open;
}

void refuse_together(const RankInfo& ranks, const Error& wrong) {
  try {
    OpenOptions open = meeting({}, wrong.what());
    open.join = open.bind_cores = false;
    open_ranks(ranks, open);
  } catch (const CommError&) {
    throw Error(wrong.code(), wrong.what());
  }
  if (ranks.rank == 0) throw Error(wrong.code(), wrong.what());
  throw Told<Error>(wrong.code(), wrong.what());
}

void end_together(World& world, const std::exception& e) {
  const auto* error = dynamic_cast<const Error*>(&e);
  const ExitCode code = error                                     ? error->code()
                        : dynamic_cast<const std::bad_alloc*>(&e) ? ExitCode::device
                                                                  : ExitCode::bug;
  std::string why = e.what();
  if (const int rank = world.ranks.rank; !why.starts_with("rank"))
    why = fmt::format("rank {} ({}): {}", rank, world.store->members()[static_cast<size_t>(rank)], why);
  const TcpStore::Verdict verdict = world.store->fail(why, code);
  if (verdict.speaks) throw Error(code, why);
  throw Told<Error>(verdict.code, why);
}

}  // namespace chiron::cli
