#include "parallel/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/complaints.h"
#include "base/json_file.h"
#include "base/numbers.h"

namespace chiron {
namespace {

bool is_product(std::string_view op) { return op.starts_with("linear") || op.starts_with("attention"); }

/// Seconds of some ops.
struct Cost {
  double computing = 0, waiting = 0;
  double beside = 0;  ///< what may run beside computing
};

class Costs {
 public:
  Costs(const Cluster& cluster, const MeshShape& mesh, int rank) : cluster_(cluster), mesh_(mesh), rank_(rank) {}

  Cost of(const WorkByOp& ops) const {
    Cost cost;
    for (const auto& [op, work] : ops) {
      const auto call = group_call(op, mesh_, rank_, static_cast<int>(cluster_.ranks_per_node));
      if (!call) {
        cost.computing += cluster_.speeds.seconds(op, work);
      } else if ((call->axes & Axis::pp) == Axis::none || call->op == CommOp::all_reduce) {
        const bool data = cluster_.overlap && (call->axes & Axis::data) == call->axes;
        (data ? cost.beside : cost.waiting) += chiron::seconds(ring_cost(call->op, call->size), work, link(*call));
      }
    }
    return cost;
  }
  /// Seconds until the message of another stage is there.
  double receive(const WorkByOp& step) const {
    double sum = 0, calls = 0;
    for (const auto& [op, work] : step) {
      const auto call = group_call(op, mesh_, rank_, static_cast<int>(cluster_.ranks_per_node));
      if (!call || call->op != CommOp::receive) continue;
      sum += chiron::seconds(ring_cost(CommOp::send, 2), work, link(*call));
      calls += work.calls;
    }
    return calls > 0 ? sum / calls : 0;
  }

 private:
  Link link(const GroupCall& call) const { return (call.across ? cluster_.between : cluster_.inside).link(); }

  const Cluster& cluster_;
  const MeshShape& mesh_;
  int rank_;
};

/// What of the communication of a pass over so many units shows.
double exposed(const Cost& cost, int units) {
  const double alone = 1.0 / units;
  return cost.beside * alone + std::max(0.0, cost.beside - cost.computing) * (1 - alone);
}

}  // namespace

OpSpeeds::OpSpeeds(double flops_per_second, double bytes_per_second)
    : per_flop_(1 / flops_per_second), per_byte_(1 / bytes_per_second) {}

void OpSpeeds::read(const std::string& file) {
  double spent[2] = {}, done[2] = {};
  for (const JsonObject& op : JsonObject::read(file).objects("ops")) {
    const std::string name = op.text("op");
    const double seconds = op.number("milliseconds") * 1e-3;
    const bool product = is_product(name);
    const double work = op.number(product ? "flops" : "bytes");
    if (work <= 0) continue;
    by_op_[name] = seconds / work;
    spent[product] += seconds, done[product] += work;
  }
  if (done[0] == 0 || done[1] == 0)
    throw DataError("{}: ops: products and others of a step are needed, as `chiron bench step --json` writes them",
                    file);
  if (per_byte_ == 0) per_byte_ = spent[0] / done[0];
  if (per_flop_ == 0) per_flop_ = spent[1] / done[1];
}

double OpSpeeds::seconds(std::string_view op, const Work& work) const {
  const bool product = is_product(op);
  const auto own = by_op_.find(op);
  return (product ? work.flops : work.bytes) * (own != by_op_.end() ? own->second : product ? per_flop_ : per_byte_);
}

void Cluster::Way::describe(Schema& s) {
  s.option("bandwidth", bandwidth, "Bytes that a rank takes in while it sends as many.").above(0).unit("GB/s");
  s.option("latency", latency, "Of one message.").at_least(0).unit("microseconds");
}

void Cluster::describe(Schema& s) {
  constexpr int64_t kMost = 1 << 16;
  s.option("nodes", nodes, "Machines.").at_least(1).at_most(kMost);
  s.option("ranks_per_node", ranks_per_node, "GPUs of a machine, or its CPU ranks.").at_least(1).at_most(kMost);
  s.option("memory", memory, "Of a rank. 0: not compared.").at_least(0).unit("bytes");
  s.group("inside", inside, "Between ranks of a node.");
  s.group("between", between, "Between nodes.");
  s.option("overlap", overlap,
           "Whether sums and gathers over data ranks run beside computing, as on GPUs. On CPU ranks nothing does.");
  s.option("tflops", tflops, "Speed of products. 0: as `ops` says.").at_least(0).unit("TFLOP/s");
  s.option("memory_bandwidth", memory_bandwidth, "Speed of all other ops. 0: as `ops` says.").at_least(0).unit("GB/s");
  s.option("ops", ops, "A file that `chiron bench step --json` wrote: the speed of each op.");
}

Cluster load_cluster(const std::string& file) {
  Cluster c;
  Schema(c).read(read_yaml(file));
  Complaints complaints;
  complaints.collect([&] {
    if (c.ops.empty() && (c.tflops == 0 || c.memory_bandwidth == 0))
      throw ConfigError("{}: how fast ops are is missing: set tflops and memory_bandwidth, or ops", file);
  });
  auto check = [&](const Cluster::Way& way, const char* name) {
    if (way.bandwidth == 0) throw ConfigError("{}: {}.bandwidth is missing", file, name);
  };
  complaints.collect([&] {
    if (c.ranks_per_node > 1) check(c.inside, "inside");
  });
  complaints.collect([&] {
    if (c.nodes > 1) check(c.between, "between");
  });
  if (c.nodes * c.ranks_per_node > 1 << 20)
    complaints.collect([&] {
      throw ConfigError("{}: nodes {} x ranks_per_node {} are more ranks than there can be", file, c.nodes,
                        c.ranks_per_node);
    });
  complaints.raise();
  if (c.tflops > 0 && c.memory_bandwidth > 0) c.speeds = {c.tflops * 1e12, c.memory_bandwidth * 1e9};
  if (!c.ops.empty()) c.speeds.read((std::filesystem::path(file).parent_path() / c.ops).string());
  return c;
}

Prediction predict(const Cluster& cluster, const MeshShape& mesh, ScheduleShape shape,
                   const std::vector<StageStep>& stages) {
  shape.split = shape.splits();
  Prediction result;
  std::vector<StageTimes> times;
  double before = 0, after = 0;
  for (int i = 0; i < shape.stages; ++i) {
    const StageStep& stage = stages[static_cast<size_t>(i)];
    const Costs costs(cluster, mesh, stage.rank);
    ScheduleShape traced = shape;
    traced.micros = stage.micros;
    const auto actions = schedule(traced, i);
    const ActionWork cut = cut_by_action(*stage.work, actions, stage.units);
    auto& seen = result.stages.emplace_back();
    StageTimes& own = times.emplace_back();
    own.receive = costs.receive(stage.work->total());
    own.receive_blocks = !cluster.overlap;
    for (const Action& a : schedule(shape, i)) {
      Action like = a;
      if (stage.micros < shape.micros) like.micro = a.micro + 1 == shape.micros ? stage.micros - 1 : 0;
      const auto& pass = cut.actions[static_cast<size_t>(std::ranges::find(actions, like) - actions.begin())];
      const Cost cost = costs.of(pass.ops);
      const double shows = exposed(cost, pass.units);
      seen.computing += cost.computing;
      seen.communicating += cost.waiting + shows;
      seen.hidden += cost.beside - shows;
      own.actions.push_back(cost.computing + cost.waiting + shows);
    }
    auto around = [&](const WorkByOp& ops, double& longest) {
      const Cost cost = costs.of(ops);
      seen.computing += cost.computing;
      seen.communicating += cost.waiting + cost.beside;
      longest = std::max(longest, cost.computing + cost.waiting + cost.beside);
    };
    around(cut.before, before);
    around(cut.after, after);
  }
  const PlayedStep played = play(shape, times);
  for (size_t i = 0; i < result.stages.size(); ++i) result.stages[i].communicating += played.receiving[i];
  result.seconds = before + played.seconds + after;
  result.bubble = played.bubble();
  return result;
}

std::string Prediction::table(double tokens, double flops, int ranks) const {
  auto ms = [](double s) { return fmt::format("{:.4g} ms", s * 1e3); };
  std::string out = fmt::format("\npredicted for {}\n", counted(ranks, "rank"));
  auto line = [&](std::string_view what, const std::string& value) {
    out += fmt::format("  {:<26}{:>16}\n", what, value);
  };
  line("step", ms(seconds));
  line("tokens per second", with_commas(static_cast<int64_t>(tokens / seconds)));
  line("TFLOP/s of each rank", fmt::format("{:.4g}", flops / seconds / ranks / 1e12));
  if (stages.size() > 1) line("pipeline bubble", fmt::format("{:.1f} %", 100 * bubble));
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string of = stages.size() > 1 ? fmt::format(", stage {}", i) : "";
    line("computing" + of, ms(stages[i].computing));
    if (ranks == 1) continue;
    line("communication" + of, ms(stages[i].communicating));
    if (stages[i].hidden > 0) line("  beside computing" + of, ms(stages[i].hidden));
  }
  return out;
}

}  // namespace chiron
