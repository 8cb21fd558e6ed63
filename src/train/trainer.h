#pragma once

#include <memory>
#include <optional>

#include "base/log.h"
#include "comm/mesh.h"
#include "data/prefetcher.h"
#include "optim/lr_schedule.h"
#include "parallel/store.h"
#include "train/device_stream.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/run_state.h"
#include "train/scalars.h"
#include "train/sources.h"
#include "train/step.h"
#include "train/stop_signal.h"

namespace chiron {

/// One run, from its configuration to its last checkpoint.
class Trainer {
 public:
  /// Opens everything: data, model, run folder; resumes from the newest whole checkpoint if there is one. Every rank of
  /// `world`, which outlives this, makes one, with the same options.
  /// Of them at most `ranks_per_node` (0: all) share a node's memory.
  Trainer(Options options, bool fresh, Log& log, Communicator& world, int ranks_per_node = 0);

  /// Trains until max_steps (ExitCode::done) or a signal (stopped). Diverged after too many skipped steps in a row.
  ExitCode run();

 private:
  void allocate();
  /// Before memory is given away: which algorithms compute the plan's products.
  void choose_products(const std::optional<CheckpointInfo>& newest);
  StepStats step(int64_t n);
  void watch(const StepScalars& scalars);
  /// `ends`: no step follows.
  void save(bool ends);
  std::optional<double> validate(const StopSignal& stop);
  bool is_first() const { return world_.rank() == 0; }
  /// Whether any rank was asked to stop: the same answer on all.
  bool stopping(const StopSignal& stop);

  Communicator& world_;
  int per_node_;  ///< ranks
  Options options_;
  Log& log_;
  Mesh mesh_;
  Sources sources_;
  std::unique_ptr<Model> model_;
  ThreadPool pool_;
  DeviceStream device_;
  Stream& stream_ = device_.stream;
  std::unique_ptr<Loader> loader_, validation_;  // before the folder: bad data leaves no trace
  Plan plan_;                                    // so does too little memory
  RunFolder folder_;
  Scalars scalars_;
  std::unique_ptr<ParamStore> params_;
  std::unique_ptr<TrainStep> step_;
  std::unique_ptr<DeviceBatches> batches_;
  LearningRate rate_;
  std::unique_ptr<Prefetcher> prefetcher_;
  Counters counters_;
  std::unique_ptr<Saver> saver_;
  int64_t saved_step_ = -1;  ///< of the newest save that was started, or loaded
};

}  // namespace chiron
