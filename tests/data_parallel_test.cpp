// Ranks that share the data, and perhaps state, train as one rank over the same samples does.

#include "comm/thread_ranks.h"
#include "data/testing.h"
#include "support/rank_run.h"
#include "train/evaluate.h"
#include "train/op_recorder.h"

namespace chiron::tests {
namespace {

constexpr int64_t kSequences = 2, kLength = 20;

/// Ignores labels by the number of the sample: all of micro-batch 1 of the step (which one rank has), a third of the
/// others. So any cut of the step ignores the same.
void ignore_unevenly(HostStep& step) {
  for (HostBatch& micro : step.micros)
    for (size_t i = 0; i < micro.labels.size(); ++i) {
      const int64_t index = micro.index[i], batch = index / (kSequences * kLength);
      if (batch == 1 || index * 7 % 3 == batch % 3) micro.labels[i] = kIgnore;
    }
}

Options options_of(Family family, int64_t micros, bool tied) {
  Options o = tiny_options(family);
  o.model.num_layers = 3;
  o.model.d_model = 40;
  o.model.tie_embeddings = tied;
  o.model.d_ff = o.model.head_dim = 0;
  o.training.batch_size = kSequences;
  o.training.seq_len = kLength;
  o.training.gradient_accumulation = micros;
  resolve(o.model);
  return o;
}

/// One rank that sees what `ranks` data ranks with these options see.
RankRun alone(Options o, int ranks) {
  o.parallel = {};
  o.training.gradient_accumulation *= ranks;
  return RankRun(o, 1, ignore_unevenly);
}

class LongDataParallel : public testing::TestWithParam<std::tuple<int, int64_t, bool>> {};

TEST_P(LongDataParallel, EveryStageOfZeroIsLikeOneRank) {
  const auto [ranks, micros, tied] = GetParam();
  Options o = options_of(tied ? Family::gpt2 : Family::llama, micros, tied);
  const RankRun one = alone(o, ranks);
  RankRun* plain = nullptr;
  std::vector<std::unique_ptr<RankRun>> runs;
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "zero " << zero);
    o.parallel.zero = zero;
    runs.push_back(std::make_unique<RankRun>(o, ranks, ignore_unevenly));
    const RankRun& run = *runs.back();
    run.expect_like(one);
    run.expect_same(RankRun(o, ranks, ignore_unevenly), "twice");
    if (!plain) plain = runs.back().get();
    // The layout acted. Small tensors end at a multiple of 256 bytes, however small a rank's share.
    auto is_share = [&](int64_t part, int64_t whole) {
      EXPECT_GE(part, whole / ranks);
      EXPECT_LE(static_cast<double>(part), static_cast<double>(whole) / ranks * 1.15);
    };
    const StoreBytes &b = run.bytes, &whole = plain->bytes;
    if (zero > 0) is_share(b.optimizer, whole.optimizer);
    if (zero > 1) is_share(b.gradients, whole.gradients);
    if (zero > 2) is_share(b.weights, whole.weights);
    EXPECT_EQ(b.buffers > 0, zero > 1);
    const double moved = static_cast<double>(run.received) * ranks / (ranks - 1);
    const auto g = static_cast<double>(plain->bytes.gradients), m = static_cast<double>(micros);
    const double want = zero < 2 ? 2 * g : (m + 1) * g;
    if (zero < 3)
      EXPECT_NEAR(moved, want, 0.06 * want) << "gradients of " << g << " bytes";
    else
      EXPECT_GT(moved, 1.3 * m * g);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LongDataParallel,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 3), testing::Bool()));

TEST(DataParallel, EachStageTakesLessThanTheOneBefore) {
  Options o = options_of(Family::gpt2, 1, true);
  o.model.num_layers = 12;
  const auto model = make_model(model_setup(o, 0));
  Stream s = Stream::dry({});
  Mesh mesh = Mesh::planned({}, 4, 1);
  int64_t before = make_store(s, model->params(), {})->bytes().total();
  for (const int zero : {1, 2, 3}) {
    const int64_t bytes = make_store(s, model->params(), {.zero = zero, .mesh = &mesh})->bytes().total();
    EXPECT_LT(bytes, before) << zero;
    before = bytes;
  }
}

TEST(LongDataParallelLayouts, PoliciesAndNarrowTypesAreLikeOneRank) {
  for (const int zero : {0, 1, 2, 3})
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(testing::Message() << "zero " << zero << (bf16 ? ", bf16" : ""));
      Options o = options_of(bf16 ? Family::llama : Family::gpt2, 2, !bf16);
      o.parallel.zero = zero;
      o.training.use_amp = bf16;
      o.model.dropout = o.model.residual_dropout = 0.1;
      o.activations.kind = Activations::Kind::keep_none;
      const RankRun run(o, 2, ignore_unevenly);
      // Weights that differ in the last bit of float32 may round apart.
      run.expect_like(alone(o, 2), bf16 ? 1e-4 : 1e-5, bf16 ? 1e-2 : kCheckAfterTolerance);
      o.activations.kind = Activations::Kind::keep_all;
      run.expect_same(RankRun(o, 2, ignore_unevenly), "policies");
    }
}

TEST(LongDataParallelLayouts, ShardsWithinReplicas) {
  Options o = options_of(Family::gpt2, 2, true);
  const RankRun one = alone(o, 4);
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "zero " << zero);
    o.parallel.zero = zero;
    const RankRun pair(o, 2, ignore_unevenly);
    o.parallel.zero_group = 2;
    const RankRun run(o, 4, ignore_unevenly);
    o.parallel.zero_group = 0;
    run.expect_like(one);
    EXPECT_EQ(run.bytes.total(), pair.bytes.total());
    EXPECT_GT(run.received, pair.received);
  }
}

TEST(LongDataParallelLayouts, TiedEmbeddingsLiveOnTwoStages) {
  for (const bool tied : {true, false})
    for (const int zero : {0, 1, 2, 3})
      for (const bool split : {false, true}) {
        SCOPED_TRACE(testing::Message() << "tied " << tied << " zero " << zero << " split " << split);
        Options o = options_of(Family::gpt2, 3, tied);
        o.parallel.pp = 2;
        o.parallel.zero = zero;
        const RankRun run(o, 4, ignore_unevenly, split);
        run.expect_like(alone(o, 2));
        run.expect_same(RankRun(o, 4, ignore_unevenly, split), "twice");
      }
}

TEST(LongDataParallelLayouts, SharedOutStateGoesWithTensorAndContextRanks) {
  for (const Family family : {Family::gpt2, Family::llama}) {  // llama has two kv heads: four ranks hold each twice
    Options o = options_of(family, 2, family == Family::gpt2);
    const RankRun one = alone(o, 2);
    struct Axes {
      int tp, cp;
      bool sequence;
    };
    for (const auto [tp, cp, sequence] : {Axes{2, 1, true}, {4, 1, false}, {4, 1, true}, {1, 2, true}, {2, 2, true}})
      for (const int zero : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << names_of(family)[static_cast<size_t>(family)] << " tp " << tp << " cp " << cp
                                        << " sequence " << sequence << " zero " << zero);
        o.parallel.tp = tp;
        o.parallel.cp = cp;
        o.parallel.sequence = sequence;
        o.parallel.zero = zero;
        RankRun(o, 2 * tp * cp, ignore_unevenly).expect_like(one);
      }
  }
}

TEST(LongDataParallelLayouts, EveryOrderOfAPipelineKeepsGradientsApart) {
  Options o = options_of(Family::gpt2, 4, true);
  const RankRun one = alone(o, 2);
  o.parallel.pp = 2;
  for (const auto order :
       {PipelineOrder::gpipe, PipelineOrder::one_f_one_b, PipelineOrder::interleaved, PipelineOrder::zero_bubble})
    for (const int zero : {0, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "order " << static_cast<int>(order) << " zero " << zero);
      o.parallel.schedule = order;
      o.parallel.chunks = order == PipelineOrder::interleaved ? 2 : 1;
      o.parallel.zero = zero;
      RankRun(o, 4, ignore_unevenly).expect_like(one);
    }
}

TEST(DataParallel, AUnitIsReducedBeforeTheNextGoesBack) {
  const Options o = options_of(Family::gpt2, 2, true);
  const auto model = make_model(model_setup(o, 0));
  Mesh mesh = Mesh::planned({}, 2, 0);
  Stream s = Stream::dry({});
  const auto params = make_store(s, model->params(), {.mesh = &mesh});
  StepScalars scalars;
  TrainStep step(*model, *params, mesh, step_setup(o, *model), std::nullopt, &scalars);
  Stack tokens = Stack::dry(7);
  std::vector<Batch> micros;
  for (int m = 0; m < 2; ++m) micros.push_back(push_batch(tokens, o.training.batch_size, o.training.seq_len, false));
  OpRecorder trace;
  s.set_trace(&trace);
  step.run(s, micros);
  std::vector<Unit> reduced;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const PlannedOp& op = trace.ops[i];
    if (op.name != "all_reduce dp" || op.unit < 0) continue;
    EXPECT_FALSE(op.forward);
    reduced.push_back(op.unit);
    if (op.unit > 0) {
      EXPECT_EQ(trace.ops[i + 1].unit, op.unit - 1);
    }
    // The embedding's gradient is the head's too: it waits for both.
    int64_t numel = 0;
    for (const ParamSpec& spec : model->params())
      if (spec.unit == op.unit && spec.tied_to == kNoParam) numel += spec.shape.numel();
    EXPECT_GE(op.inputs[0].shape.numel(), numel);
    EXPECT_LT(op.inputs[0].shape.numel(), numel + 64 * std::ssize(model->params()));
  }
  EXPECT_EQ(reduced, (std::vector<Unit>{4, 3, 2, 1, 0})) << "once, in the last micro-batch";
}

/// Writes NaN into a gradient of the head, on one rank, before it is reduced.
struct Poison final : Trace {
  explicit Poison(TinyRun& r) : run(r) {}
  void begin(const OpInfo&) override {}
  void end(const OpInfo&) override {}
  void unit(int unit, bool forward) override {
    if (unit != run.model->head() || forward) return;
    Accum accum;
    const Tensor g = run.params.grad(static_cast<Param>(run.params.specs().size()) - 1, accum);
    EXPECT_EQ(accum, Accum::add);
    g.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  }
  TinyRun& run;
};

TEST(DataParallel, AValidationSetThatRanksDoNotDivide) {
  const Options o = options_of(Family::llama, 1, false);
  std::vector<int32_t> tokens(7 * kLength + 5);  // seven samples and a bit, two a rank and step
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 61);
  const auto source = std::make_shared<test::VectorSource>(tokens);
  std::optional<Evaluation> one;
  for (const int ranks : {1, 2, 3, 5})
    run_thread_ranks(ranks, [&](Communicator& world) {
      TinyRun run(o, 1, false, {}, &world);
      const Loader loader(source, {.sequences = kSequences,
                                   .length = kLength,
                                   .rank = world.rank(),
                                   .num_ranks = ranks,
                                   .shuffle = false,
                                   .once = true});
      const auto result = evaluate(run.s, *run.step, run.scalars, run.batches, loader, 0, run.mesh);
      if (ranks == 1) one = result;
      EXPECT_EQ(result->tokens, static_cast<int64_t>(tokens.size()) - 1);
      EXPECT_NEAR(result->loss(), one->loss(), 1e-5) << ranks << " ranks";
    });
}

TEST(DataParallel, OneRanksPoisonIsSkippedByAll) {
  for (const int zero : {0, 1, 2, 3})
    for (const int poisoned : {0, 2})
      for (const bool tied : {false, true})
        run_thread_ranks(3, [&](Communicator& world) {
          Options o = options_of(Family::llama, 2, tied);
          o.parallel.zero = zero;
          TinyRun run(o, 1, false, {}, &world);
          run.run(0);
          const auto before = run.weights();
          Poison poison(run);
          if (world.rank() == poisoned) run.s.set_trace(&poison);
          StepScalars s = run.run(1);
          run.s.set_trace(nullptr);
          EXPECT_FALSE(s.finite) << "zero " << zero << ", rank " << world.rank();
          EXPECT_EQ(s.applied, 1);
          EXPECT_EQ(run.weights(), before);
          s = run.run(2);
          EXPECT_TRUE(s.finite) << "zero " << zero << ", rank " << world.rank();
          EXPECT_EQ(s.applied, 2);
        });
}

}  // namespace
}  // namespace chiron::tests
