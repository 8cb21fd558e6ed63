#include "parallel/play.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace chiron {

double PlayedStep::bubble() const {
  double worked = std::accumulate(busy.begin(), busy.end(), 0.0);
  worked += std::accumulate(receiving.begin(), receiving.end(), 0.0);
  return seconds > 0 ? 1 - worked / (seconds * static_cast<double>(busy.size())) : 0;
}

PlayedStep play(const ScheduleShape& shape, const std::vector<StageTimes>& stages) {
  const int p = shape.stages, parts = p * (p > 1 ? shape.chunks : 1);
  struct Span {
    double start, end;
  };
  std::map<std::tuple<int, int, int>, Span> done;  // kind, part, micro
  auto find = [&](int kind, int part, int micro) -> std::optional<Span> {
    const auto at = done.find({kind, part, micro});
    if (at == done.end()) return std::nullopt;
    return at->second;
  };
  struct Stage {
    std::vector<Action> todo;
    size_t next = 0;
    double free = 0;
    std::vector<std::pair<int, int>> sent;  // gradients: part, micro
  };
  std::vector<Stage> all(static_cast<size_t>(p));
  for (int i = 0; i < p; ++i) all[static_cast<size_t>(i)].todo = schedule(shape, i);
  PlayedStep result;
  result.busy.resize(all.size());
  result.receiving.resize(all.size());

  // Whether the stage's next action could be placed.
  auto place = [&](int i) {
    Stage& s = all[static_cast<size_t>(i)];
    if (s.next == s.todo.size()) return false;
    const StageTimes& times = stages[static_cast<size_t>(i)];
    const Action a = s.todo[s.next];
    const int part = a.chunk * p + i;
    const int before = a.kind == Action::forward ? part - 1 : a.kind == Action::backward ? part + 1 : -1;
    const bool receives = before >= 0 && before < parts;
    double start = s.free;
    if (receives) {
      const auto theirs = find(a.kind, before, a.micro);
      if (!theirs) return false;
      start = std::max(start, theirs->end + (times.receive_blocks ? 0 : times.receive));
    }
    if (a.kind == Action::backward && std::ssize(s.sent) >= kGradientBuffers) {
      const auto [of, micro] = *(s.sent.end() - kGradientBuffers);
      const auto taken = of > 0 ? find(Action::backward, of - 1, micro) : Span{0, 0};
      if (!taken) return false;
      start = std::max(start, taken->start);
    }
    const double wait = receives && times.receive_blocks ? times.receive : 0, took = times.actions.at(s.next);
    s.free = start + wait + took;
    result.receiving[static_cast<size_t>(i)] += wait;
    result.busy[static_cast<size_t>(i)] += took;
    done[{a.kind, part, a.micro}] = {start + wait, s.free};
    if (a.kind == Action::backward) s.sent.emplace_back(part, a.micro);
    ++s.next;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < p; ++i)
      while (place(i)) moved = true;
  }
  for (const Stage& s : all) {
    CHECK(s.next == s.todo.size(), "the stages of a pipeline wait for each other");
    result.seconds = std::max(result.seconds, s.free);
  }
  return result;
}

}  // namespace chiron
