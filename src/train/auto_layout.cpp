#include "train/auto_layout.h"

#include <algorithm>

#include "base/numbers.h"
#include "base/thread_pool.h"
#include "parallel/layout_search.h"
#include "train/layout.h"
#include "train/setup.h"

namespace chiron {
namespace {

std::string micros_text(int64_t n) { return fmt::format("{} micro-batch{}", n, n == 1 ? "" : "es"); }

}  // namespace

double LayoutPlan::moved(double across) const {
  double most = 0;
  for (const Traffic& t : sent) most = std::max(most, weighed(t, across));
  return most;
}

LayoutPlan plan_layout(const Options& given, int64_t data_vocab, int world, int ranks_per_node, Device device) {
  LayoutPlan plan{.sizes = mesh_sizes(given, world)};
  Options options = with_mesh(given, plan.sizes);
  const int on_node = ranks_per_node > 0 ? std::min(ranks_per_node, world) : world;
  if (options.run.threads == 0 && world > 1) options.run.threads = std::max<int64_t>(1, num_cores() / on_node);
  double flops = 0;  // per token, over all stages
  for (int stage = 0; stage < plan.sizes.pp; ++stage) {
    const int rank = MeshShape(plan.sizes).at(Axis::pp, stage, 0);
    const Mesh mesh = Mesh::planned(plan.sizes, world, rank);
    const auto model = make_model(model_setup(options, data_vocab, mesh));
    Plan& own = plan.stages.emplace_back(make_plan(options, *model, device, nullptr, mesh));
    plan.ranks.push_back(rank);
    plan.sent.push_back(traffic(own.step, mesh.shape(), rank, ranks_per_node));
    flops += own.flops_per_token * mesh.size(Axis::tp | Axis::cp);
    if (own.total() > plan.largest().total()) plan.most = static_cast<size_t>(stage);
  }
  for (Plan& own : plan.stages) own.flops_per_token = flops;
  return plan;
}

std::string layout_text(const Options& o, const MeshSizes& sizes) {
  std::string text = sizes.str();
  if (o.parallel.zero > 0 && sizes.dp > 1) text += fmt::format(", ZeRO {}", o.parallel.zero);
  if (sizes.tp > 1 && o.parallel.sequence) text += ", sequence parallel";
  if (sizes.pp > 1) {
    text += fmt::format(", schedule {}", names_of(o.parallel.schedule)[static_cast<size_t>(o.parallel.schedule)]);
    if (o.parallel.chunks > 1) text += fmt::format(" of {} chunks", o.parallel.chunks);
  }
  return text + fmt::format(", {} of {} on each data rank", micros_text(o.training.gradient_accumulation),
                            counted(o.training.batch_size, "sequence"));
}

std::string layout_table(const LayoutPlan& plan, const Options& options, const Model& model) {
  const int pp = plan.sizes.pp;
  const std::string whose =
      pp == 1 ? "each rank" : fmt::format("rank {} (stage {}), which needs most", plan.ranks[plan.most], plan.most);
  std::string out = plan_table(plan.largest(), options, model, whose);
  out += fmt::format("\nlayout: {}\n", layout_text(options, plan.sizes));
  for (int stage = 0; stage < pp && pp > 1; ++stage) {
    std::string units;
    for (const UnitRange& r : units_of_stage(model.units(), pp, static_cast<int>(options.parallel.chunks), stage))
      units +=
          fmt::format("{}{} to {}", units.empty() ? "" : ", ", unit_name(r.first, model), unit_name(r.last - 1, model));
    const auto i = static_cast<size_t>(stage);
    out += fmt::format("  stage {:<3} {:<44} {:>10}, sends {}\n", stage, units, bytes_text(plan.stages[i].total()),
                       bytes_text(static_cast<int64_t>(weighed(plan.sent[i], 1))));
  }
  return out + traffic_table(plan.sent[plan.most]);
}

AutoLayout choose_layout(const Options& options, int64_t data_vocab, const AutoRanks& ranks, Device device) {
  const auto cp = static_cast<int>(options.parallel.cp);
  if (ranks.world % cp != 0)
    throw ConfigError("parallel.auto: parallel.cp {} does not divide {} ranks", cp, ranks.world);
  const TrainingOptions& t = options.training;
  const LayoutTask task{.ranks = ranks.world / cp,
                        .batch_size = t.batch_size,
                        .micros = t.gradient_accumulation * std::max<int64_t>(1, options.parallel.dp),
                        .units = static_cast<int>(options.model.num_layers) + 2,
                        .order = options.parallel.schedule,
                        .chunks = options.parallel.chunks};
  auto laid_out = [&](const LayoutCandidate& c) {
    Options o = options;
    o.parallel.dp = c.dp, o.parallel.tp = c.tp, o.parallel.pp = c.pp, o.parallel.zero = c.zero;
    o.parallel.sequence = c.sequence;
    o.training.batch_size = c.batch_size, o.training.gradient_accumulation = c.micros;
    return o;
  };
  std::string refused;
  const auto found = find_layout(task, ranks.memory, [&](const LayoutCandidate& c) -> std::optional<LayoutNeed> {
    try {
      const LayoutPlan plan = plan_layout(laid_out(c), data_vocab, ranks.world, ranks.per_node, device);
      return LayoutNeed{plan.largest().total(), plan.moved(ranks.across)};
    } catch (const ConfigError& e) {
      refused = e.what();
      return std::nullopt;
    }
  });
  std::string why;
  if (task.micros % task.ranks != 0)
    why = fmt::format(
        "; data ranks share out the {} of a step: for {} of them make training.gradient_accumulation a multiple of {}, "
        "with a smaller training.batch_size",
        micros_text(task.micros), task.ranks, task.ranks);
  if (!found)
    throw ConfigError("parallel.auto: no layout of {} ranks is possible{}{}{}", ranks.world,
                      refused.empty() ? "" : ": ", refused, why);
  const Options chosen = laid_out(found->layout);
  const std::string text = layout_text(chosen, mesh_sizes(chosen, ranks.world));
  const std::string needs = bytes_text(found->need.memory), has = bytes_text(ranks.memory);
  if (!found->fits)
    throw OutOfMemory(
        "parallel.auto: out of memory: no layout of {} ranks fits into the {} of each; the smallest, {}, needs {}{}",
        ranks.world, has, text, needs, why);
  return {chosen, fmt::format("parallel.auto: {}; {} of the {} of a rank{}", text, needs, has, why)};
}

}  // namespace chiron
