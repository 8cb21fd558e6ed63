#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "support/gathered.h"
#include "support/tiny_run.h"

namespace chiron::tests {

/// A small model whose scores differ, and sequences that ranks share out.
inline Options layout_options(Family family, int64_t length) {
  Options o = tiny_options(family);
  o.training.seq_len = length;
  o.model.init_std = 0.2;
  return o;
}

inline void drop(Options& o, double p) {
  o.model.dropout = o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout = p;
}

/// How a step is shared out among thread ranks.
struct Layout {
  MeshSizes sizes;
  bool sequence_parallel = false;
  bool split_weight_gradients = false;
};

/// One step's loss and gradients under a layout.
struct LayoutRun {
  double loss = 0, evaluated = 0;  ///< in training, and evaluation of the first micro-batch
  int64_t tokens = 0, evaluated_tokens = 0;
  Gathered weights, gradients;
  // By rank:
  std::vector<int64_t> block_elements;  ///< of the first block's matrices
  std::vector<int64_t> saved_bytes, bytes_received;
};

/// Makes what starts as zeros and ones differ from element to element, the same in every layout.
inline void disturb_vectors(Stream& s, ParamStore& params) {
  for (const StatePart& part : weight_parts(params)) {
    if (part.global.rank != 1) continue;
    for (int64_t i = 0; i < part.data.cols; ++i)
      part.data.data<float>()[i] += static_cast<float>((part.part.offset[0] + i) * 37 % 101 - 50) * 0.004f;
  }
  params.refresh(s);
}

/// One rank's part.
inline void run_rank(const Options& o, const Layout& layout, Communicator& world, LayoutRun& run, std::mutex& mutex) {
  Mesh mesh(world, layout.sizes);
  const auto rank = static_cast<size_t>(world.rank());
  ThreadPool pool(1);
  Stream s({}, pool);
  ModelSetup setup = model_setup(o, o.model.vocab_size);
  setup.tp = mesh.size(Axis::tp);
  setup.tp_rank = mesh.index(Axis::tp);
  setup.sequence_parallel = layout.sequence_parallel;
  const auto model = make_model(setup);
  const auto store =
      make_store(s, model->params(),
                 {.compute = compute_dtype(o), .mesh = &mesh, .split_weight_gradients = layout.split_weight_gradients});
  ParamStore& params = *store;
  initialize(s, params, static_cast<uint64_t>(o.training.seed));
  disturb_vectors(s, params);
  const Loader loader(std::make_shared<SyntheticSource>(SyntheticOptions{.vocab_size = o.model.vocab_size}),
                      {.sequences = o.training.batch_size,
                       .length = o.training.seq_len,
                       .micros = o.training.gradient_accumulation,
                       .rank = mesh.index(Axis::dp),
                       .num_ranks = mesh.size(Axis::dp),
                       .context_rank = mesh.index(Axis::cp),
                       .context_ranks = mesh.size(Axis::cp),
                       .row_ranks = layout.sequence_parallel ? mesh.size(Axis::tp) : 1,
                       .document_mask = o.data.document_mask});
  HostStep host;
  loader.fill(0, host);
  DeviceBatches batches({}, loader.options());
  const auto micros = batches.upload(s, host.micros);

  TrainStep::Setup step_options = step_setup(o, *model);
  step_options.sequence_parallel = layout.sequence_parallel;
  step_options.split_weight_gradients = layout.split_weight_gradients;
  Scalars scalars(s);
  Mesh planned = Mesh::planned(layout.sizes, world.size(), world.rank());
  TrainStep dry(*model, params, planned, step_options, std::nullopt, scalars.device());
  Stream dry_stream = Stream::dry({});
  dry.gradients(dry_stream, micros);
  dry.evaluate(dry_stream, micros.front());
  const Stacks stacks = std::move(dry).take_stacks();
  TrainStep step(*model, params, mesh, step_options, Stacks::like(stacks, {}), scalars.device());
  step.set_poison(&s);
  const int64_t before = world.bytes_received();
  step.gradients(s, micros);
  run.bytes_received[rank] = world.bytes_received() - before;
  run.saved_bytes[rank] = stacks.saved_peak();
  for (const ParamSpec& spec : model->params())
    if (spec.unit == 1 && spec.tp_dim >= 0 && spec.shape.rank == 2) run.block_elements[rank] += spec.valid_numel();

  {
    const std::lock_guard lock(mutex);
    run.weights.add(weight_parts(params, Which::mine));
    run.gradients.add(gradient_parts(params, Which::mine));
  }
  world.barrier(s);
  run.weights.expect_same_bits(weight_parts(params));
  run.gradients.expect_same_bits(gradient_parts(params));
  const StepScalars got = scalars.read(s);
  StepScalars fresh = got;
  fresh.sums[1] = 0, fresh.tokens = 0;
  scalars.write(s, fresh);
  step.evaluate(s, micros.front());
  const StepScalars evaluated = scalars.read(s);
  const std::lock_guard lock(mutex);
  run.tokens = got.tokens;
  if (!step.counts_loss()) return;
  run.loss += got.sums[1] / static_cast<double>(got.tokens);
  run.evaluated += evaluated.sums[1];
  run.evaluated_tokens += evaluated.tokens;
}

/// A step's gradients under a layout, on threads. One rank without one.
inline LayoutRun run_layout(const Options& o, Layout layout = {}) {
  const MeshSizes& m = layout.sizes;
  const int ranks = m.tp * m.cp * m.ep * std::max(m.dp, 1) * m.pp;
  LayoutRun run;
  for (auto* list : {&run.block_elements, &run.saved_bytes, &run.bytes_received})
    list->resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_thread_ranks(ranks, [&](Communicator& world) { run_rank(o, layout, world, run, mutex); });
  return run;
}

/// Loss and gradients are those of `want`, and the same weights were drawn.
inline void expect_equal(const LayoutRun& got, const LayoutRun& want, const std::string& what) {
  constexpr double kRelative = 1e-5;
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_NEAR(got.loss, want.loss, kRelative * want.loss) << what;
  EXPECT_EQ(got.evaluated_tokens, want.evaluated_tokens) << what;
  EXPECT_NEAR(got.evaluated, want.evaluated, kRelative * want.evaluated) << what;
  expect_close(got.weights, want.weights, 0, what);
  expect_close(got.gradients, want.gradients, kRelative, what);
}

}  // namespace chiron::tests
