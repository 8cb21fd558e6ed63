#include "train/run_folder.h"

#include "base/error.h"

namespace chiron {
namespace {

/// runs/a -> runs/a.1, or the first such name that is free.
std::string aside(const std::string& dir) {
  for (int i = 1;; ++i) {
    std::string name = fmt::format("{}.{}", dir, i);
    if (!directory_exists(name) && !file_exists(name)) return name;
  }
}

void compare(const Options& options, const std::string& config) {
  auto changed = differences(read_resolved(config), options);
  if (changed.empty()) return;
  std::string list;
  for (const Difference& d : changed) list += fmt::format("\n  {}: {} in the run, {} now", d.key, d.before, d.now);
  throw ConfigError(
      "{} was trained with other options that may not change on resume:{}\n"
      "take them back, choose another run.dir, or start anew with --fresh",
      options.run.dir, list);
}

}  // namespace

RunFolder::RunFolder(const Options& options, bool fresh, Log& log) : dir_(options.run.dir) {
  make_directories(dir_);
  lock_.emplace(dir_ + "/lock");
  const std::string config = config_of(dir_);
  if (fresh && (file_exists(config) || directory_exists(checkpoints()))) {
    std::string name = aside(dir_);
    rename_path(dir_, name);
    log.info("the run that was in {} is in {} now", dir_, name);
    make_directories(dir_);
    lock_.emplace(dir_ + "/lock");
  }
  remove_unfinished(dir_);
  if (file_exists(config)) compare(options, config);
  write_file(config, to_yaml(options));
  make_directories(checkpoints());
}

}  // namespace chiron
