#pragma once

#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "core/graph.h"
#include "models/model.h"
#include "ops/adamw/adamw.h"
#include "parallel/schedule.h"
#include "parallel/stages.h"
#include "train/policy.h"
#include "train/stacks.h"

namespace chiron {

/// Runs units [units.first, units.last) but for the head, from x (absent: from the tokens), and keeps nothing; returns
/// the last one's output, on c.saved.
View forward_units(Ctx& c, const Model& model, const Batch& batch, UnitRange units, View x = {});

/// The device side of training: forward and backward of each micro-batch, norm, clipping, update. Run on a dry stream
/// with dry stacks it is the plan; run for real it allocates nothing and reads nothing back. On a GPU the second step
/// is captured, as Setup::graphs says, and replayed from then on; a stream with a trace is given op after op.
///
/// On several ranks it is one rank's part: of the data, of each unit (tensor and context parallelism), of the units
/// (pipeline).
class TrainStep {
 public:
  struct Setup {
    DType compute = DType::f32;
    Policy policy;
    AdamWOptions adamw;
    Graphs graphs = Graphs::off;
    bool split_weight_gradients = false;  ///< weight gradients as actions of their own
    bool sequence_parallel = false;
    PipelineOrder order = PipelineOrder::one_f_one_b;
    int chunks = 1;  ///< parts of the model on each pipeline stage
    int micros = 1;  ///< micro-batches of a step
  };

  /// All references outlive the step. `scalars` is in device memory. Absent stacks are dry ones, as many as it needs.
  TrainStep(const Model& model, ParamStore& params, Mesh& mesh, Setup setup, std::optional<Stacks> stacks,
            StepScalars* scalars);

  /// One optimizer step over Setup::micros micro-batches; their addresses are those of the first step.
  void run(Stream& s, std::span<const Batch> micros);
  /// Loss and gradients only, left in the store.
  void gradients(Stream& s, std::span<const Batch> micros);
  /// Adds the token losses and the number of labels of a batch to scalars->sums[1] and scalars->tokens, on the ranks
  /// that count them.
  void evaluate(Stream& s, const Batch& batch);
  /// Whether this rank adds its loss to the step's: of the ranks of one batch, one does.
  bool counts_loss() const;

  /// The stacks, with their peaks: what a dry step is run for. Ends the use of this object.
  Stacks take_stacks() && { return std::move(stacks_); }
  void set_poison(Stream* stream);

 private:
  /// Which micro-batch runs, as far as the work depends on it.
  struct Place {
    bool first, last;
  };
  /// A micro-batch in a chunk, from its forward pass to its last action.
  struct Flight {
    std::vector<Saved> saved;      // by unit
    std::vector<int64_t> bottoms;  // top of the saved stack before each unit
    Batch batch;
    int64_t sent = 0;  // ticket of the chunk's output
    WgradQueue wgrads;
  };

  Ctx context(Stream& s, Mode mode, Stack& saved);
  int part_of(const Action& a) const { return a.chunk * stages_ + stage_; }
  bool is_first(int part) const { return part == 0; }
  bool is_last(int part) const { return part + 1 == std::ssize(parts_); }
  int neighbour(int step) const { return (stage_ + step + stages_) % stages_; }
  int64_t rows(const Batch& batch) const;
  void whole(Stream& s, std::span<const Batch> micros);
  void forward(Stream& s, const Action& a, int stack, const Batch& batch, Place place);
  void backward(Stream& s, const Action& a, int stack, Place place);
  template <class F>
  void region(Stream& s, Action::Kind kind, Unit u, int stack, Place place, F&& work);

  const Model& model_;
  ParamStore& params_;
  Mesh& mesh_;
  Setup setup_;
  StepScalars* scalars_;
  int stages_, stage_;
  std::vector<UnitRange> parts_;  // of the model, in order; chunk c of this stage is parts_[c * stages_ + stage_]
  std::vector<Action> actions_;
  std::vector<int> stack_of_;  // each action's
  Stacks stacks_;
  std::vector<Flight> flights_;  // by saved stack

  // Pipelines: the way of gradients, backwards, while outputs go by the mesh's group; and the gradients.
  std::unique_ptr<Communicator> returns_;
  struct Outbox {
    Tensor d;
    int64_t sent = 0;  // ticket
  };
  std::array<Outbox, kGradientBuffers> outboxes_;
  size_t next_outbox_ = 0;

  Graphs replaying_ = Graphs::off;  // in this step
  bool warm_ = false;               // a step has run
  const Batch* captured_ = nullptr;
  Graph step_graph_;
  std::vector<Graph> unit_graphs_;  // by kind, unit, stack and place
  std::optional<Stream> muted_;     // runs nothing
};

}  // namespace chiron
