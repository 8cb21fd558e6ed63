#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/graph.h"
#include "models/model.h"
#include "ops/adamw/adamw.h"
#include "parallel/schedule.h"
#include "train/policy.h"

namespace chiron {

/// The three kinds of activation memory.
struct Stacks {
  Stack saved, unit, temp;

  static Stacks dry() { return {Stack::dry(4), Stack::dry(5), Stack::dry(6)}; }
  /// Of exactly the size that a dry run needed.
  static Stacks like(const Stacks& planned, Device device) {
    return {Stack(device, planned.saved.peak()), Stack(device, planned.unit.peak()),
            Stack(device, planned.temp.peak())};
  }
  int64_t peak() const { return saved.peak() + unit.peak() + temp.peak(); }
};

/// Runs units 0..L and keeps nothing; returns the last block's output, on c.saved.
View forward_blocks(Ctx& c, const Model& model, const Batch& batch);

/// The device side of training: forward and backward of each micro-batch, norm, clipping, update. Run on a dry stream
/// with dry stacks it is the plan; run for real it allocates nothing and reads nothing back. On a GPU the second step
/// is captured, as Setup::graphs says, and replayed from then on; a stream with a trace is given op after op.
class TrainStep {
 public:
  struct Setup {
    DType compute = DType::f32;
    Policy policy;
    AdamWOptions adamw;
    Graphs graphs = Graphs::off;
    bool split_weight_gradients = false;  ///< weight gradients as actions of their own
  };

  /// All references outlive the step. `scalars` is in device memory.
  TrainStep(const Model& model, ParamStore& params, Communicator& tp, Setup setup, Stacks stacks, StepScalars* scalars);

  /// One optimizer step over its micro-batches; their addresses are those of the first step.
  void run(Stream& s, std::span<const Batch> micros);
  /// Loss and gradients only, left in the store.
  void gradients(Stream& s, std::span<const Batch> micros);
  /// Adds the token losses and the number of labels of a batch to scalars->sums[1] and scalars->tokens.
  void evaluate(Stream& s, const Batch& batch);

  /// The stacks, with their peaks: what a dry step is run for. Ends the use of this object.
  Stacks take_stacks() && { return std::move(stacks_); }
  void set_poison(Stream* stream);

 private:
  /// Which micro-batch runs, as far as the work depends on it.
  struct Place {
    bool first, last;
  };

  Ctx context(Stream& s, Mode mode);
  void whole(Stream& s, std::span<const Batch> micros);
  void forward(Stream& s, const Batch& batch, Place place);
  void backward(Stream& s, Place place);
  template <class F>
  void region(Stream& s, Action::Kind kind, Unit u, Place place, F&& work);

  const Model& model_;
  ParamStore& params_;
  Communicator& tp_;
  Setup setup_;
  Stacks stacks_;
  StepScalars* scalars_;
  WgradQueue wgrads_;
  std::vector<Saved> saved_;      // by unit, of the micro-batch in flight
  std::vector<int64_t> bottoms_;  // top of the saved stack before each unit
  std::vector<Action> schedule_;

  Graphs replaying_ = Graphs::off;  // in this step
  bool warm_ = false;               // a step has run
  const Batch* captured_ = nullptr;
  Graph step_graph_;
  std::vector<Graph> unit_graphs_;  // by kind, unit and place
  std::optional<Stream> muted_;     // runs nothing
  Batch held_;                      // the micro-batch in flight, where graphs of units find it
};

}  // namespace chiron
