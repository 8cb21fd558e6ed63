#include "cli/train_command.h"

#include "train/trainer.h"

namespace chiron::cli {

ExitCode train(const TrainArgs& args) {
  Options options = load_options(args.config, args.sets);
  if (!args.out.empty()) options.run.dir = args.out;
  Log log(options.logging.level);
  return Trainer(std::move(options), args.fresh, log).run();
}

}  // namespace chiron::cli
