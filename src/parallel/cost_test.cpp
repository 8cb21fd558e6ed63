#include "parallel/cost.h"

#include <gmock/gmock.h>

#include "base/error_testing.h"
#include "base/files.h"
#include "base/temp_dir.h"
#include "comm/comm_testing.h"
#include "parallel/cluster.h"
#include "parallel/layout_search.h"

namespace chiron {
namespace {

using testing::HasSubstr;

TEST(RingCost, IsThatOfTheFormulas) {
  EXPECT_DOUBLE_EQ(ring_cost(CommOp::all_reduce, 4).share, 1.5);
  EXPECT_DOUBLE_EQ(ring_cost(CommOp::all_reduce, 4).rounds, 6);
  EXPECT_DOUBLE_EQ(ring_cost(CommOp::reduce_scatter, 4).share, 0.75);
  EXPECT_DOUBLE_EQ(ring_cost(CommOp::all_gather, 4).rounds, 3);
  EXPECT_DOUBLE_EQ(ring_cost(CommOp::send, 2).share, 1);
  EXPECT_DOUBLE_EQ(ring_cost(CommOp::receive, 2).share, 0);
  // 5 calls of 2 GB in all: 1.5 x 2 / 10 s, and 6 messages of 1 ms each.
  EXPECT_DOUBLE_EQ(seconds(ring_cost(CommOp::all_reduce, 4), {.calls = 5, .larger = 2e9}, {10e9, 1e-3}),
                   0.3 + 5 * 6 * 1e-3);
}

TEST(GroupCall, KnowsGroupsAndNodes) {
  // Nodes of four ranks: tp inside, dp over pairs of nodes.
  const MeshShape mesh(fit_mesh({.tp = 4, .dp = 2, .pp = 2}, 16));
  const auto call = [&](const char* op, int rank) { return *group_call(op, mesh, rank, 4); };
  EXPECT_FALSE(group_call("linear", mesh, 0, 4));
  EXPECT_FALSE(group_call("fill zero", mesh, 0, 4));
  EXPECT_EQ(call("all_reduce tp", 5).size, 4);
  EXPECT_FALSE(call("all_reduce tp", 5).across);
  EXPECT_EQ(call("all_reduce dp", 5).size, 2);
  EXPECT_TRUE(call("all_reduce dp", 5).across);
  EXPECT_EQ(call("all_reduce tp+dp+pp", 5).size, 16);
  EXPECT_EQ(call("all_reduce pp tied", 0).size, 2);
  EXPECT_TRUE(call("send pp", 0).across);
  EXPECT_FALSE(group_call("send pp", mesh, 0, 16)->across);
  EXPECT_FALSE(group_call("all_reduce dp", mesh, 0, 0)->across);
}

TEST(Traffic, OfADryStep) {
  Mesh mesh = Mesh::planned({.tp = 2, .dp = 4}, 8, 3);
  StepWork work;
  Stream s = Stream::dry({});
  s.set_trace(&work);
  const Tensor t{4096, DType::f32, {1000}}, part{8192, DType::f32, {250}};
  mesh.group(Axis::tp).all_reduce(s, t, Reduce::sum);
  mesh.group(Axis::dp).all_gather(s, t, part);
  mesh.group(Axis::dp).all_gather(s, t, part);
  mesh.group(Axis::dp).send(s, part, 0);
  const Traffic sent = traffic(work.total(), mesh.shape(), 3, 2);
  EXPECT_DOUBLE_EQ(sent.at("all_reduce tp").inside, 4000);
  EXPECT_DOUBLE_EQ(sent.at("all_gather dp").across, 2 * 3000);
  EXPECT_DOUBLE_EQ(sent.at("send dp").total(), 1000);
  EXPECT_DOUBLE_EQ(weighed(sent, 10), 4000 + 10 * 6000 + 10 * sent.at("send dp").across + sent.at("send dp").inside);
  EXPECT_THAT(traffic_table(sent), HasSubstr("11.0 kB"));
}

TEST(Play, BubblesAreThoseOfTheFormulas) {
  for (int p : {1, 2, 4})
    for (int m : {8, 16}) {
      auto times = [&](const ScheduleShape& shape, double forward, double receive, bool blocks) {
        std::vector<StageTimes> all;
        for (int i = 0; i < p; ++i) {
          all.push_back({{}, receive, blocks});
          for (const Action& a : schedule(shape, i))
            all.back().actions.push_back(a.kind == Action::forward ? forward : 2 * forward);
        }
        return all;
      };
      const ScheduleShape straight{PipelineOrder::one_f_one_b, p, 1, m};
      const PlayedStep step = play(straight, times(straight, 1, 0, false));
      EXPECT_DOUBLE_EQ(step.seconds, 3.0 * (m + p - 1));
      EXPECT_NEAR(step.bubble(), (p - 1.0) / (m + p - 1), 1e-12);
      const ScheduleShape chunks{PipelineOrder::interleaved, p, 2, m};
      if (p > 1) {
        EXPECT_DOUBLE_EQ(play(chunks, times(chunks, 1, 0, false)).seconds, 3.0 * (2 * m + p - 1));
        EXPECT_DOUBLE_EQ(play(straight, times(straight, 1, 0.5, true)).receiving[0], 0.5 * m);
      }
    }
  // Two stages, one micro-batch: there and back again, a message each way.
  const ScheduleShape one{PipelineOrder::gpipe, 2, 1, 1};
  EXPECT_DOUBLE_EQ(play(one, {{{1, 2}, 0.25, false}, {{3, 4}, 0.25, false}}).seconds, 10.5);
}

/// A stage whose forward pass of each unit is a product of 1 GFLOP, backward of two.
StepWork stage_work(UnitRange units, int micros, const std::vector<Action>& actions, double reduced) {
  StepWork work;
  auto op = [&](const char* name, std::vector<Operand> in, double flops) { work.begin({name, {}, in, flops}); };
  auto bytes = [](double n) { return std::vector<Operand>{Tensor{64, DType::u8, {static_cast<int64_t>(n)}}}; };
  op("count_labels", bytes(1e6), 0);
  for (const Action& a : actions) {
    const bool forward = a.kind == Action::forward;
    for (Unit i = units.first; i < units.last; ++i) {
      const Unit u = forward ? i : units.last - 1 - (i - units.first);
      work.unit(u, forward);
      op("linear", bytes(10), forward ? 1e9 : 2e9);
      if (!forward && a.micro + 1 == micros && reduced > 0) op("all_reduce dp", bytes(reduced), 0);
    }
    if (forward) op("send pp", bytes(1e6), 0);
    if (forward) op("receive pp", bytes(1e6), 0);
  }
  work.unit(-1, false);
  op("adamw", bytes(5e6), 0);
  return work;
}

Cluster machine(bool overlap) {
  Cluster c;
  c.nodes = 1, c.ranks_per_node = 4;
  c.inside = {.bandwidth = 1, .latency = 0};
  c.overlap = overlap;
  c.speeds = OpSpeeds(1e12, 1e9);
  return c;
}

TEST(Predict, DataRanksByHand) {
  // A GFLOP takes 1 ms: 3 units of 1 + 2 ms over 2 micro-batches; 1 ms before, 5 ms after, 3 sums of 2 x 3/4 x 4 MB.
  const MeshShape mesh(fit_mesh({.dp = 4}, 4));
  const ScheduleShape shape{.micros = 2};
  const StepWork work = stage_work({0, 3}, 2, schedule(shape, 0), 4e6);
  const std::vector<StageStep> stage{{&work, 2, {{0, 3}}, 0}};
  const Prediction cpu = predict(machine(false), mesh, shape, stage);
  EXPECT_NEAR(cpu.seconds, 0.001 + 2 * 0.009 + 0.018 + 0.005, 1e-9);
  EXPECT_NEAR(cpu.stages[0].communicating, 0.018, 1e-9);
  EXPECT_NEAR(cpu.bubble, 0, 1e-12);
  // Beside 6 ms of the last backward pass: a third has nothing beside it, two thirds of 12 ms are too long.
  const Prediction gpu = predict(machine(true), mesh, shape, stage);
  EXPECT_NEAR(gpu.stages[0].communicating, 0.006 + 0.008, 1e-9);
  EXPECT_NEAR(gpu.stages[0].hidden, 0.004, 1e-9);
  // The two that were traced stand for ten.
  const Prediction ten = predict(machine(false), mesh, {.micros = 10}, stage);
  EXPECT_NEAR(ten.seconds - cpu.seconds, 8 * 0.009, 1e-9);
}

TEST(Predict, PipelinesByHand) {
  const MeshShape mesh(fit_mesh({.pp = 2}, 2));
  const ScheduleShape shape{PipelineOrder::one_f_one_b, 2, 1, 4};
  const StepWork first = stage_work({0, 2}, 4, schedule(shape, 0), 0),
                 second = stage_work({2, 4}, 4, schedule(shape, 1), 0);
  Cluster c = machine(true);
  c.inside.bandwidth = 1e6;  // so that a message takes no time
  const Prediction p = predict(c, mesh, shape, {{&first, 4, {{0, 2}}, 0}, {&second, 4, {{2, 4}}, 1}});
  EXPECT_NEAR(p.seconds, 0.001 + 0.006 * (4 + 1) + 0.005, 1e-6);
  EXPECT_NEAR(p.bubble, 0.2, 1e-4);
}

TEST(Cluster, FilesAreChecked) {
  TempDir dir;
  auto load = [&](const std::string& text) {
    write_file(dir / "c.yaml", text);
    return load_cluster(dir / "c.yaml");
  };
  const Cluster c = load(
      "nodes: 4\nranks_per_node: 8\nmemory: 80G\ninside: {bandwidth: 400, latency: 3}\n"
      "between: {bandwidth: 50}\ntflops: 400\nmemory_bandwidth: 3000\n");
  EXPECT_EQ(c.ranks(), 32);
  EXPECT_DOUBLE_EQ(c.inside.link().latency, 3e-6);
  EXPECT_DOUBLE_EQ(c.speeds.seconds("linear", {.flops = 4e14}), 1);
  EXPECT_DOUBLE_EQ(c.speeds.seconds("rmsnorm", {.bytes = 3e12}), 1);
  const auto message = [&](const std::string& text) { return message_of<ConfigError>([&] { load(text); }); };
  EXPECT_THAT(message("nodes: 2\ntflops: 1\nmemory_bandwidth: 1\n"),
              testing::AllOf(HasSubstr("inside.bandwidth"), HasSubstr("between.bandwidth")));
  EXPECT_THAT(message("ranks_per_node: 1\n"), HasSubstr("tflops"));
  EXPECT_THAT(message("node: 2\n"), HasSubstr("nodes"));
  write_file(dir / "ops.json", R"({"ops": [{"op": "linear", "calls": 2, "milliseconds": 4, "flops": 2e9, "bytes": 1},
      {"op": "gelu", "calls": 1, "milliseconds": 1, "flops": 5, "bytes": 1e6},
      {"op": "add", "calls": 1, "milliseconds": 1, "flops": 5, "bytes": 3e6}]})");
  const Cluster measured = load("ranks_per_node: 1\nops: ops.json\n");
  EXPECT_DOUBLE_EQ(measured.speeds.seconds("linear_backward_input", {.flops = 1e9}), 2e-3);
  EXPECT_DOUBLE_EQ(measured.speeds.seconds("gelu", {.bytes = 2e6}), 2e-3);
  EXPECT_DOUBLE_EQ(measured.speeds.seconds("adamw", {.bytes = 2e6}), 1e-3);
}

/// Needs 100 / tp / pp bytes, half of it shared out by ZeRO; tp moves much, dp less, pp least.
std::optional<LayoutNeed> judge(const LayoutCandidate& c) {
  if (c.tp > 2) return std::nullopt;
  const int64_t all = 100 / c.tp / c.pp;
  return LayoutNeed{c.zero > 0 ? all / 2 + all / 2 / c.dp : all, 100.0 * (c.tp - 1) + 10.0 * (c.dp - 1) + (c.pp - 1)};
}

TEST(LayoutSearch, TakesWhatFitsAndMovesLeast) {
  const LayoutTask task{.ranks = 4, .batch_size = 2, .micros = 4, .units = 6};
  auto found = [&](LayoutTask t, int64_t memory) { return *find_layout(t, memory, judge); };
  // Eight micro-batches of one sequence keep two stages busy enough, but not four.
  FoundLayout best = found(task, 1000);
  EXPECT_TRUE(best.fits);
  EXPECT_EQ(best.layout.pp, 2);
  EXPECT_EQ(best.layout.dp, 2);
  EXPECT_EQ(best.layout.zero, 0);
  EXPECT_EQ(best.layout.batch_size * best.layout.micros * best.layout.dp, 8);
  // ZeRO where it is needed.
  best = found(task, 40);
  EXPECT_EQ(best.layout.pp, 2);
  EXPECT_EQ(best.layout.zero, 1);
  // A long bubble rather than nothing.
  best = found(task, 25);
  EXPECT_EQ(best.layout.tp * best.layout.pp, 4);
  EXPECT_FALSE(found(task, 10).fits);
  // Data ranks share micro-batches.
  for (const LayoutCandidate& c : layout_candidates({.ranks = 4, .batch_size = 8, .micros = 1, .units = 6})) {
    EXPECT_EQ(c.dp, 1);
    EXPECT_EQ(c.batch_size * c.micros, 8);
  }
  for (const LayoutCandidate& c : layout_candidates(
           {.ranks = 4, .batch_size = 4, .micros = 2, .units = 9, .order = PipelineOrder::interleaved, .chunks = 2}))
    EXPECT_EQ(c.pp > 1 ? c.micros % c.pp : 0, 0);
}

}  // namespace
}  // namespace chiron
