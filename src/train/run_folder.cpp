#include "train/run_folder.h"

#include "base/numbers.h"
#include "io/checkpoint.h"
#include "train/layout.h"

namespace chiron {
namespace {

/// runs/a -> runs/a.1, or the first such name that is free.
std::string aside(const std::string& dir) {
  for (int i = 1;; ++i) {
    std::string name = fmt::format("{}.{}", dir, i);
    if (!directory_exists(name) && !file_exists(name)) return name;
  }
}

void compare(const Options& options, const std::string& config, Log& log) {
  const Options before = read_resolved(config);
  auto changed = differences(before, options);
  // How the sequences of a step are cut into ranks and micro-batches may change; how many they are may not.
  if (sequences_per_step(before) == sequences_per_step(options))
    std::erase_if(changed, [](const Difference& d) {
      return d.key == "training.batch_size" || d.key == "training.gradient_accumulation";
    });
  const TrainingOptions &was = before.training, &now = options.training;
  if (changed.empty() && now.max_steps != was.max_steps && now.lr_schedule != LrSchedule::constant)
    log.info("training.max_steps was {} and is {}: from here on the learning rate is that of the new schedule",
             with_commas(was.max_steps), with_commas(now.max_steps));
  if (changed.empty()) return;
  std::string list;
  for (const Difference& d : changed) list += fmt::format("\n  {}: {} in the run, {} now", d.key, d.before, d.now);
  throw ConfigError(
      "{} was trained with other options that may not change on resume:{}\n"
      "take them back, choose another run.dir, or start anew with --fresh",
      options.run.dir, list);
}

/// Whether there is something to resume, whole or damaged.
bool has_checkpoints(const std::string& dir) {
  const CheckpointScan scan = find_checkpoints(dir);
  return !scan.whole.empty() || !scan.skipped.empty();
}

std::string without_slash(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

/// A run locks its folder before it writes anything else there; one that was copied may have lost the lock.
void refuse_foreign_folder(const std::string& dir) {
  if (!directory_exists(dir) || list_directory(dir).empty() || file_exists(dir + "/lock") ||
      file_exists(RunFolder::config_of(dir)) || directory_exists(dir + "/checkpoints"))
    return;
  throw ConfigError("{} is not empty and holds no run; choose another run.dir", dir);
}

}  // namespace

RunFolder::RunFolder(const Options& options, bool fresh, Log& log, bool owner) : dir_(without_slash(options.run.dir)) {
  if (!owner) return;
  refuse_foreign_folder(dir_);
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
  // A run that failed before its first checkpoint binds nobody.
  if (has_checkpoints(checkpoints())) {
    if (!file_exists(config))
      throw ConfigError(
          "{}: the run has checkpoints, but {} is gone, so that nobody can tell whether the options are "
          "the same; put it back, or start anew with --fresh",
          dir_, config);
    compare(options, config, log);
  }
  write_file(config, to_yaml(options));
  make_directories(checkpoints());
}

void RunFolder::check_in_place() const {
  if (lock_->in_place()) return;
  throw IoError(
      "{} is no longer this run's folder: {}/lock was moved, removed or replaced while it trained. Nothing more was "
      "saved; put the folder back and start again to go on from its last checkpoint",
      dir_, dir_);
}

Options with_model_of_run(Options options, bool fresh) {
  const std::string dir = without_slash(options.run.dir), config = RunFolder::config_of(dir);
  if (fresh || !options.model_pending || !file_exists(config) || !has_checkpoints(dir + "/checkpoints")) return options;
  if (const ModelConfig model = read_resolved(config).model; !model.from.empty()) adopt_model(options, model, config);
  return options;
}

}  // namespace chiron
