#include "cli/run_commands.h"

#include "base/files.h"
#include "base/hash.h"
#include "comm/open_ranks.h"
#include "train/trainer.h"

namespace chiron::cli {
namespace {

/// What the ranks of one run must agree in.
OpenOptions meeting(const Options& options) {
  const auto seconds = std::chrono::seconds(options.parallel.timeout);
  return {.meet_timeout = std::min<std::chrono::seconds>(seconds, std::chrono::seconds(60)),
          .call_timeout = seconds,
          .identity = {{"version", CHIRON_VERSION},
                       {"GPU back end", CHIRON_GPU_BACKEND},
                       {"configuration", hash128(to_yaml(options)).hex()}}};
}

}  // namespace

ExitCode train(const TrainArgs& args) {
  set_file_faults({.crash_at = args.crash_at, .fail_at = args.disk_full_at, .lasting = true});
  Options options = load_options(args.config, args.sets);
  if (!args.out.empty()) options.run.dir = args.out;
  const RankInfo ranks = find_ranks(process_environment());
  // Of several ranks the first speaks for all; the others say what goes wrong.
  Log log(ranks.rank == 0 ? options.logging.level : std::max(options.logging.level, LogLevel::error), ranks.rank,
          ranks.world);
  if (ranks.world > 1 || ranks.launcher != Launcher::single) log.info("{}", ranks.str());
  const World world = open_ranks(ranks, meeting(options));
  if (ranks.world > 1) log.info("{}", world.topology);
  return Trainer(std::move(options), args.fresh, log, *world.comm, world.ranks.local_world).run();
}

}  // namespace chiron::cli
