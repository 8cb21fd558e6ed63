// The parity matrix: whatever the layout, ranks together train as one rank does over the same samples, and two runs of
// a layout give the same bits.

#include <memory>

#include "support/rank_run.h"

namespace chiron::tests {
namespace {

constexpr int64_t kSequences = 2, kLength = 24, kMicros = 4;

/// Ignores labels by the number of the sample: all of some sequences, a third of the others. So any cut of the step
/// ignores the same.
void ignore_unevenly(HostStep& step) {
  for (HostBatch& micro : step.micros)
    for (size_t i = 0; i < micro.labels.size(); ++i) {
      const int64_t index = micro.index[i], sequence = index / kLength;
      if (sequence % 5 == 2 || index * 7 % 3 == sequence % 3) micro.labels[i] = kIgnore;
    }
}

/// As tied as gpt2 or as untied as llama, with grouped heads.
Options model_of(Family family) {
  Options o = tiny_options(family);
  o.model.d_model = 32;
  o.model.d_ff = o.model.head_dim = 0;
  o.training.batch_size = kSequences;
  o.training.seq_len = kLength;
  o.training.gradient_accumulation = kMicros;
  resolve(o.model);
  return o;
}

struct Case {
  std::string name;
  ParallelOptions parallel;
  int ranks;
};

/// Axes at `dp`, `tp`, `cp`, `pp`.
Case at(int64_t dp, int64_t tp, int64_t cp, int64_t pp, int64_t zero = 0,
        PipelineOrder order = PipelineOrder::one_f_one_b, int64_t chunks = 1, bool sequence = true) {
  Case c;
  c.parallel.dp = dp, c.parallel.tp = tp, c.parallel.cp = cp, c.parallel.pp = pp, c.parallel.zero = zero;
  c.parallel.schedule = order, c.parallel.chunks = chunks, c.parallel.sequence = sequence;
  c.ranks = static_cast<int>(dp * tp * cp * pp);
  c.name = fmt::format("dp{}_tp{}_cp{}_pp{}_zero{}_{}{}{}", dp, tp, cp, pp, zero, static_cast<int>(order),
                       chunks > 1 ? "_chunks" : "", tp > 1 && !sequence ? "_whole_rows" : "");
  return c;
}

std::vector<Case> cases() {
  using enum PipelineOrder;
  return {// Each axis.
          at(2, 1, 1, 1), at(2, 1, 1, 1, 1), at(2, 1, 1, 1, 2), at(2, 1, 1, 1, 3), at(1, 2, 1, 1),
          at(1, 2, 1, 1, 0, one_f_one_b, 1, false), at(1, 1, 2, 1), at(1, 1, 1, 2), at(1, 1, 1, 2, 0, gpipe),
          at(1, 1, 1, 2, 0, interleaved, 2), at(1, 1, 1, 2, 0, zero_bubble),
          // Each pair.
          at(2, 2, 1, 1), at(2, 2, 1, 1, 3), at(2, 1, 2, 1), at(2, 1, 2, 1, 2), at(2, 1, 1, 2), at(2, 1, 1, 2, 1),
          at(2, 1, 1, 2, 2, zero_bubble), at(2, 1, 1, 2, 3, interleaved, 2), at(1, 2, 2, 1), at(1, 2, 1, 2),
          at(1, 2, 1, 2, 0, interleaved, 2, false), at(1, 1, 2, 2), at(1, 1, 2, 2, 0, zero_bubble),
          // Three.
          at(2, 2, 1, 2), at(2, 2, 1, 2, 1), at(2, 2, 1, 2, 2, interleaved, 2), at(2, 2, 1, 2, 3), at(2, 2, 2, 1, 3),
          at(1, 2, 2, 2),
          // Ranks that divide nothing.
          at(3, 1, 1, 1), at(3, 1, 1, 1, 3), at(1, 1, 3, 1), at(1, 1, 1, 3, 0, gpipe), at(1, 1, 1, 3, 0, zero_bubble),
          at(1, 4, 1, 1)};
}

class LongParallelMatrix : public testing::TestWithParam<Case> {};

TEST_P(LongParallelMatrix, TrainsAsOneRankDoes) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    SCOPED_TRACE(family == Family::gpt2 ? "gpt2, tied" : "llama, untied");
    Options o = model_of(family);
    o.model.dropout = o.model.residual_dropout = o.model.attention_dropout = o.model.embedding_dropout = 0.1;
    Options single = o;
    single.training.gradient_accumulation *= GetParam().parallel.dp;
    const RankRun one(single, 1, ignore_unevenly);
    o.parallel = GetParam().parallel;
    const RankRun run(o, GetParam().ranks, ignore_unevenly);
    run.expect_like(one);
    run.expect_same(RankRun(o, GetParam().ranks, ignore_unevenly), "twice");
    EXPECT_GT(run.received, 0) << "nothing was communicated";
    o.activations.kind = Activations::Kind::keep_none;
    run.expect_same(RankRun(o, GetParam().ranks, ignore_unevenly), "nothing kept");
  }
}

INSTANTIATE_TEST_SUITE_P(All, LongParallelMatrix, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// Every order of a pipeline sums gradients in the same order.
TEST(PipelineParallel, OrdersGiveTheSameBits) {
  Options o = model_of(Family::llama);
  o.parallel.pp = 2;
  const RankRun run(o, 2);
  for (const auto order : {PipelineOrder::gpipe, PipelineOrder::zero_bubble}) {
    o.parallel.schedule = order;
    run.expect_same(RankRun(o, 2), std::string(names_of(order)[static_cast<size_t>(order)]));
  }
  // And that of one rank, which holds all units.
  o.parallel = {};
  const RankRun one(o, 1);
  expect_close(run.gradients, one.gradients, 0, "one rank");
}

TEST(PipelineParallel, MoreStagesThanUnitsAreRefused) {
  Options o = model_of(Family::llama);
  o.parallel.pp = 6;
  EXPECT_THROW(RankRun(o, 6), ConfigError);
}

}  // namespace
}  // namespace chiron::tests
