#include <new>

#include "base/files.h"
#include "cli/run_commands.h"
#include "comm/open_ranks.h"
#include "train/trainer.h"

namespace chiron::cli {
namespace {

/// What the ranks of one run must agree in.
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

Options read_options(const TrainArgs& args) {
  Options options = load_options(args.config, args.sets);
  if (!args.out.empty()) options.run.dir = args.out;
  return options;
}

/// Most likely every rank has found the same: then the first says so. If only some have, they are named.
[[noreturn]] void refuse_together(const RankInfo& ranks, const Error& wrong) {
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

/// Tells all ranks why this one ends; one of them tells the user.
[[noreturn]] void end_together(World& world, const std::exception& e) {
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

}  // namespace

ExitCode train(const TrainArgs& args) {
  set_file_faults({.crash_at = args.crash_at, .fail_at = args.disk_full_at, .lasting = true});
  const RankInfo ranks = find_ranks(process_environment());
  Options options;
  try {
    options = read_options(args);
  } catch (const Error& e) {
    if (ranks.world == 1) throw;
    refuse_together(ranks, e);
  }
  // Of several ranks the first speaks for all; the others say what goes wrong.
  Log log(ranks.rank == 0 ? options.logging.level : std::max(options.logging.level, LogLevel::error), ranks.rank,
          ranks.world);
  if (ranks.world > 1 || ranks.launcher != Launcher::single) log.info("{}", ranks.str());
  World world = open_ranks(ranks, meeting(options, ""));
  if (ranks.world > 1) log.info("{}", world.topology);
  try {
    return Trainer(std::move(options), args.fresh, log, *world.comm).run();
  } catch (const std::exception& e) {
    if (!world.store) throw;
    end_together(world, e);
  }
}

}  // namespace chiron::cli
