#include "parallel/layout_search.h"

#include <algorithm>
#include <tuple>

namespace chiron {
namespace {

/// Cuts batches until a pipeline has enough micro-batches: p stages lose p - 1 of m + p - 1 passes. False if no cut
/// makes a number that the schedule takes.
bool cut_batches(const LayoutTask& task, LayoutCandidate& c) {
  if (c.pp == 1) return true;
  const int64_t enough = 4 * (c.pp - 1);
  int64_t parts = 0;
  for (int64_t n = 1; n <= c.batch_size; ++n) {
    if (c.batch_size % n != 0) continue;
    if (task.order == PipelineOrder::interleaved && c.micros * n % c.pp != 0) continue;
    parts = n;
    if (c.micros * n >= enough) break;
  }
  if (parts == 0) return false;
  c.batch_size /= parts;
  c.micros *= parts;
  c.short_bubble = c.micros >= enough;
  return true;
}

}  // namespace

std::vector<LayoutCandidate> layout_candidates(const LayoutTask& task) {
  std::vector<LayoutCandidate> all;
  for (int pp = 1; pp <= task.ranks && pp * (pp > 1 ? task.chunks : 1) <= task.units; ++pp) {
    if (task.ranks % pp != 0) continue;
    for (int tp = 1; tp <= task.ranks / pp; ++tp) {
      const int dp = task.ranks / pp / tp;
      if (task.ranks / pp % tp != 0 || task.micros % dp != 0) continue;
      LayoutCandidate c{.dp = dp, .tp = tp, .pp = pp, .batch_size = task.batch_size, .micros = task.micros / dp};
      if (cut_batches(task, c)) all.push_back(c);
    }
  }
  return all;
}

std::optional<FoundLayout> find_layout(const LayoutTask& task, int64_t memory,
                                       const std::function<std::optional<LayoutNeed>(const LayoutCandidate&)>& judge) {
  std::optional<FoundLayout> best;
  auto rank_of = [](const FoundLayout& f) {
    return f.fits ? std::tuple(0, f.layout.short_bubble ? 0 : 1, f.need.moved)
                  : std::tuple(1, 0, static_cast<double>(f.need.memory));
  };
  for (LayoutCandidate c : layout_candidates(task)) {
    // Where nothing is shared out over data ranks, or weights over stages that hold them all step long.
    const int most_zero = c.dp == 1 ? 0 : c.pp > 1 ? 2 : 3;
    for (c.zero = 0; c.zero <= most_zero; ++c.zero) {
      std::optional<LayoutNeed> need;
      for (const bool sequence : {true, false}) {
        c.sequence = sequence;
        if ((need = judge(c)) || c.tp == 1) break;
      }
      if (!need) break;
      const FoundLayout found{c, *need, need->memory <= memory};
      if (!best || rank_of(found) < rank_of(*best)) best = found;
      if (found.fits) break;
    }
  }
  return best;
}

}  // namespace chiron
