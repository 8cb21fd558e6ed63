#include "cli/run_commands.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/numbers.h"
#include "parallel/cluster.h"
#include "train/auto_layout.h"
#include "train/layout.h"
#include "train/memory.h"
#include "train/setup.h"
#include "train/sources.h"

namespace chiron::cli {
namespace {

/// As many ranks as the options name.
int ranks_of(const ParallelOptions& p) { return static_cast<int>(std::max<int64_t>(1, p.dp) * p.tp * p.cp * p.pp); }

std::string predicted(const LayoutPlan& plan, const Options& options, const Model& model, const Cluster& cluster) {
  std::vector<StageStep> stages;
  const int pp = plan.sizes.pp, chunks = static_cast<int>(options.parallel.chunks);
  for (int i = 0; i < pp; ++i) {
    const Plan& own = plan.stages[static_cast<size_t>(i)];
    stages.push_back(
        {&own.work, own.work_micros, units_of_stage(model.units(), pp, chunks, i), plan.ranks[static_cast<size_t>(i)]});
  }
  const Plan& largest = plan.largest();
  const auto tokens = static_cast<double>(largest.tokens_per_step);
  const MeshShape mesh(plan.sizes);
  const Prediction p = predict(
      cluster, mesh, {options.parallel.schedule, pp, chunks, static_cast<int>(options.training.gradient_accumulation)},
      stages);
  std::string out = p.table(tokens, largest.flops_per_token * tokens, mesh.size(Axis::all));
  if (cluster.memory > 0)
    out += fmt::format("  {:<26}{:>16}  of {}{}\n", "memory of a rank", bytes_text(largest.total()),
                       bytes_text(cluster.memory), largest.total() > cluster.memory ? ": too little" : "");
  return out;
}

}  // namespace

ExitCode plan(const PlanArgs& args) {
  Log log;
  Options options = with_model(load_options(args.config, args.sets), log);
  const int64_t vocabulary = data_vocabulary(options);
  std::optional<Cluster> cluster;
  if (!args.cluster.empty()) cluster = load_cluster(args.cluster);
  const int ranks = args.ranks > 0 ? static_cast<int>(args.ranks)
                    : cluster      ? cluster->ranks()
                                   : ranks_of(options.parallel);
  const int per_node = cluster ? static_cast<int>(cluster->ranks_per_node) : ranks;
  if (cluster && ranks > cluster->ranks())
    throw ConfigError("--ranks {}: {} has {}", ranks, args.cluster, counted(cluster->ranks(), "rank"));
  // Planning for a GPU needs none.
  const bool gpu = gpu::kBuilt && options.run.device == DeviceChoice::gpu;
  const Device device = gpu         ? Device{DeviceKind::gpu, 0}
                        : ranks > 1 ? Device{}
                                    : choose_device(options.run.device, log);
  std::string out;
  if (options.parallel.automatic && ranks > 1) {
    const AutoRanks spread{
        .world = ranks,
        .per_node = per_node,
        .memory = cluster && cluster->memory > 0 ? cluster->memory : free_memory({}) / std::min(ranks, per_node),
        .across = cluster && cluster->nodes > 1 && per_node > 1 ? cluster->inside.bandwidth / cluster->between.bandwidth
                                                                : kAcrossNodes};
    AutoLayout chosen = choose_layout(options, vocabulary, spread, device);
    options = std::move(chosen.options);
    out = chosen.text + "\n\n";
  }
  const LayoutPlan plan = plan_layout(options, vocabulary, ranks, per_node, device);
  const auto model = make_model(model_setup(options, vocabulary));
  out += ranks > 1 ? layout_table(plan, options, *model) : plan_table(plan.largest(), options, *model);
  if (cluster) out += predicted(plan, options, *model, *cluster);
  if (args.ops) out += "\n" + plan_ops_table(plan.largest(), options, *model);
  std::fputs(out.c_str(), stdout);
  return ExitCode::done;
}

}  // namespace chiron::cli
