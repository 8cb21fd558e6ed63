#pragma once

#include <string>
#include <vector>

#include "parallel/cost.h"
#include "train/plan.h"

namespace chiron {

/// The plans of the ranks of a layout: one for each pipeline stage, since the others are alike.
struct LayoutPlan {
  MeshSizes sizes;
  std::vector<Plan> stages;   ///< FLOPs per token are those of all ranks together
  std::vector<int> ranks;     ///< whose plans these are
  std::vector<Traffic> sent;  ///< by them
  size_t most = 0;            ///< the stage whose ranks need most memory

  const Plan& largest() const { return stages[most]; }
  /// Weighed bytes that a rank sends in a step, at most.
  double moved(double across = kAcrossNodes) const;
};

/// Plans a run on `world` ranks, so many of them on each node (0: all). Ranks of a node share its cores. ConfigError if
/// options lay out no such run.
LayoutPlan plan_layout(const Options& options, int64_t data_vocab, int world, int ranks_per_node, Device device = {});

/// "dp 2 x tp 2, ZeRO 1, sequence parallel, 4 micro-batches of 8 sequences"
std::string layout_text(const Options& options, const MeshSizes& sizes);
/// What `chiron plan` prints of it: the table of the rank that needs most, the stages, what is sent.
std::string layout_table(const LayoutPlan& plan, const Options& options, const Model& model);

/// The ranks that a layout is chosen for.
struct AutoRanks {
  int world = 1;
  int per_node = 0;              ///< 0: all
  int64_t memory = 0;            ///< bytes of each
  double across = kAcrossNodes;  ///< by how much bytes between nodes weigh more
};
struct AutoLayout {
  Options options;   ///< with the layout filled in; a step has the same sequences
  std::string text;  ///< what was chosen, and why not more data ranks
};
/// What parallel.auto stands for: the layout that fits into each rank's memory and sends least. Leaves cp, schedule and
/// chunks as they are. A step is that of parallel.dp ranks (0: one), whose micro-batches data ranks share. A pure
/// function. ConfigError if there is no layout; OutOfMemory, which names the one that needs least, if none fits.
AutoLayout choose_layout(const Options& options, int64_t data_vocab, const AutoRanks& ranks, Device device = {});

}  // namespace chiron
