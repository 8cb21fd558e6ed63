#include "cli/run_commands.h"

#include "base/files.h"
#include "train/trainer.h"

namespace chiron::cli {

ExitCode train(const TrainArgs& args) {
  set_file_faults({.crash_at = args.crash_at, .fail_at = args.disk_full_at, .lasting = true});
  Options options = load_options(args.config, args.sets);
  if (!args.out.empty()) options.run.dir = args.out;
  Log log(options.logging.level);
  return Trainer(std::move(options), args.fresh, log).run();
}

}  // namespace chiron::cli
