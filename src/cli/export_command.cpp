#include "cli/model_commands.h"

#include "train/export.h"

namespace chiron::cli {

ExitCode export_run(const ExportArgs& args) {
  Log log;
  ThreadPool pool;
  Stream s({}, pool);
  const SavedModel m = open_model(s, args.run, {}, log);
  export_model(m, args.to);
  log.info("{} is in {}", m.dir, args.to);
  return ExitCode::done;
}

}  // namespace chiron::cli
