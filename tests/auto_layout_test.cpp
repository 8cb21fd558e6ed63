// Plans of layouts are those of their ranks' runs, and parallel.auto chooses by them.

#include "train/auto_layout.h"

#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

#include "base/error_testing.h"
#include "comm/thread_ranks.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace chiron::tests {
namespace {

using testing::HasSubstr;

Options small(int64_t dp = 0, int64_t tp = 1, int64_t pp = 1, int64_t zero = 0) {
  Options o = tiny_options(Family::llama);
  o.model.d_model = 64;
  o.model.d_ff = o.model.head_dim = 0;
  o.model.num_layers = 4;
  o.training.batch_size = 2;
  o.training.seq_len = 32;
  o.training.gradient_accumulation = 4;
  o.parallel.dp = dp, o.parallel.tp = tp, o.parallel.pp = pp, o.parallel.zero = zero;
  resolve(o.model);
  return o;
}

TEST(LayoutPlan, IsWhatEachRankTakesAndSends) {
  struct Case {
    Options options;
    int ranks;
  };
  for (const Case& c : {Case{small(2, 2), 4}, Case{small(2, 1, 1, 3), 2}, Case{small(1, 2, 2), 4},
                        Case{small(2, 1, 2, 2), 4}, Case{small(3, 1, 1, 1), 3}}) {
    SCOPED_TRACE(mesh_sizes(c.options, c.ranks).str());
    const LayoutPlan plan = plan_layout(c.options, 0, c.ranks, 0);
    ASSERT_EQ(std::ssize(plan.stages), plan.sizes.pp);
    run_thread_ranks(c.ranks, [&](Communicator& world) {
      TinyRun run(c.options, 1, false, {}, &world);
      const Plan own = make_plan(run.options, *run.model, {}, nullptr, run.mesh);
      EXPECT_EQ(own.stacks.saved_peak(), run.saved_bytes) << world.rank();
      EXPECT_EQ(own.state.total(), run.params.bytes().total()) << world.rank();
      // Ranks of a stage are alike, but that the first saves most.
      const Plan& listed = plan.stages[static_cast<size_t>(run.mesh.index(Axis::pp))];
      EXPECT_EQ(own.asked() - own.snapshot - own.workspace, listed.asked() - listed.snapshot - listed.workspace);
      EXPECT_LE(own.snapshot, listed.snapshot);
      run.run(0);
      if (plan.sizes.pp > 1) return;
      world.barrier(run.s);
      const int64_t before = world.bytes_received();
      run.run(1);
      const auto received = static_cast<double>(world.bytes_received() - before);
      EXPECT_NEAR(weighed(plan.sent[0], 1) / received, 1, 0.01) << world.rank();
    });
  }
}

TEST(LayoutPlan, CountsTheWholeModelAndAllTokens) {
  const LayoutPlan one = plan_layout(small(), 0, 1, 0);
  for (const Options& o : {small(2), small(1, 2), small(1, 1, 2), small(2, 2, 2)}) {
    const int ranks = static_cast<int>(o.parallel.dp * o.parallel.tp * o.parallel.pp);
    const LayoutPlan plan = plan_layout(o, 0, ranks, 0);
    SCOPED_TRACE(plan.sizes.str());
    EXPECT_EQ(plan.largest().parameters, one.largest().parameters);
    EXPECT_EQ(plan.largest().tokens_per_step, one.largest().tokens_per_step * o.parallel.dp);
    // Updates, norms and padding are done more than once.
    EXPECT_NEAR(plan.largest().flops_per_token / one.largest().flops_per_token, 1, 0.1);
    EXPECT_GT(plan.moved(), 0);
  }
  EXPECT_EQ(one.moved(), 0);
}

TEST(AutoLayout, KeepsTheStepAndFits) {
  Options o = small();
  o.training.batch_size = 4;
  const int64_t whole = plan_layout(o, 0, 1, 0).largest().total();
  for (const int ranks : {2, 4}) {
    const AutoLayout all = choose_layout(o, 0, {.world = ranks, .memory = whole * 2});
    EXPECT_EQ(sequences_per_step(all.options), sequences_per_step(o)) << all.text;
    EXPECT_EQ(plan_layout(all.options, 0, ranks, 0).sizes.dp, all.options.parallel.dp);
    // The same question has the same answer, and so has a run that is resumed from its answer.
    EXPECT_EQ(to_yaml(choose_layout(o, 0, {.world = ranks, .memory = whole * 2}).options), to_yaml(all.options));
    EXPECT_EQ(sequences_per_step(choose_layout(all.options, 0, {.world = ranks, .memory = whole * 2}).options),
              sequences_per_step(o));
  }
  const AutoLayout tight = choose_layout(o, 0, {.world = 4, .memory = (whole - Plan::kProgram) / 2 + Plan::kProgram});
  EXPECT_LE(plan_layout(tight.options, 0, 4, 0).largest().total(), (whole - Plan::kProgram) / 2 + Plan::kProgram);
  EXPECT_THAT(message_of<Error>([&] { choose_layout(o, 0, {.world = 4, .memory = 1000}); }),
              testing::AllOf(HasSubstr("no layout of 4 ranks fits"), HasSubstr("the smallest")));
}

TEST(AutoLayout, SaysWhyThereAreNoMoreDataRanks) {
  Options o = small();
  o.training.gradient_accumulation = 1;
  const AutoLayout chosen = choose_layout(o, 0, {.world = 2, .memory = int64_t{1} << 40});
  EXPECT_EQ(chosen.options.parallel.dp, 1);
  EXPECT_THAT(chosen.text, HasSubstr("data ranks share out the 1 micro-batch"));
  // Five ranks: no heads, no micro-batches for so many; stages there are.
  EXPECT_EQ(choose_layout(o, 0, {.world = 5, .memory = int64_t{1} << 40}).options.parallel.pp, 5);
  EXPECT_THAT(message_of<ConfigError>([&] { choose_layout(o, 0, {.world = 7, .memory = int64_t{1} << 40}); }),
              HasSubstr("no layout of 7 ranks is possible"));
}

}  // namespace
}  // namespace chiron::tests
