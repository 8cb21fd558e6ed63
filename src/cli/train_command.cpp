#include "base/files.h"
#include "cli/joined_ranks.h"
#include "cli/run_commands.h"
#include "train/trainer.h"

namespace chiron::cli {
namespace {

Options read_options(const TrainArgs& args) {
  Options options = load_options(args.config, args.sets);
  if (!args.out.empty()) options.run.dir = args.out;
  return options;
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
    return Trainer(std::move(options), args.fresh, log, *world.comm, world.ranks.local_world).run();
  } catch (const std::exception& e) {
    if (!world.store) throw;
    end_together(world, e);
  }
}

}  // namespace chiron::cli
