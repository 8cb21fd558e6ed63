#include "parallel/schedule.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace chiron {
namespace {

std::vector<Action> accumulation(const ScheduleShape& shape) {
  std::vector<Action> actions;
  for (int m = 0; m < shape.micros; ++m) {
    actions.push_back({Action::forward, m});
    actions.push_back({Action::backward, m});
    if (shape.split) actions.push_back({Action::weights, m});
  }
  return actions;
}

/// `warmup` forward passes, then a backward pass after each further one, then the backward passes that are left.
/// `nth(k, forward)` says what the kth pass in a direction works on.
template <class F>
std::vector<Action> one_backward_each(const ScheduleShape& shape, int warmup, F nth) {
  const int total = shape.micros * shape.chunks;
  std::vector<Action> actions;
  auto backward = [&](int k) {
    actions.push_back(nth(k, false));
    if (shape.split) actions.push_back({Action::weights, actions.back().micro, actions.back().chunk});
  };
  for (int k = 0; k < total; ++k) {
    actions.push_back(nth(k, true));
    if (k >= warmup) backward(k - warmup);
  }
  for (int k = std::max(0, total - warmup); k < total; ++k) backward(k);
  return actions;
}

/// Passes go through the chunks in groups of as many micro-batches as there are stages.
Action interleaved_pass(const ScheduleShape& shape, int k, bool forward) {
  const int p = shape.stages, group = p * shape.chunks;
  const int chunk = k % group / p;
  return {forward ? Action::forward : Action::backward, k / group * p + k % p,
          forward ? chunk : shape.chunks - 1 - chunk};
}

int interleaved_warmup(const ScheduleShape& shape, int stage) {
  const int total = shape.micros * shape.chunks;
  return shape.micros == shape.stages
             ? total
             : std::min(total, (shape.stages - stage - 1) * 2 + (shape.chunks - 1) * shape.stages);
}

/// All stages side by side in time, each kind of action one tick long: a stage goes forward while it holds no more
/// than a stage of 1F1B would, else back if it can, else it computes weight gradients that wait.
std::vector<Action> zero_bubble(const ScheduleShape& shape, int wanted) {
  const int p = shape.stages, m = shape.micros;
  struct Stage {
    int forward = 0, backward = 0, weights = 0;  // done
    std::vector<int> forward_at, backward_at;    // when each was done
    std::vector<Action> actions;
  };
  std::vector<Stage> all(static_cast<size_t>(p));
  const auto ready = [](const std::vector<int>& done_at, int micro, int now) {
    return micro < std::ssize(done_at) && done_at[static_cast<size_t>(micro)] <= now;
  };
  for (int now = 0; all[static_cast<size_t>(wanted)].weights < m; ++now) {
    for (int i = 0; i < p; ++i) {
      Stage& s = all[static_cast<size_t>(i)];
      const bool last = i + 1 == p;
      const bool can_return =
          s.backward < s.forward && (last ? ready(s.forward_at, s.backward, now)
                                          : ready(all[static_cast<size_t>(i) + 1].backward_at, s.backward, now));
      const bool can_enter = s.forward < m && s.forward - s.weights < p &&
                             (i == 0 || ready(all[static_cast<size_t>(i) - 1].forward_at, s.forward, now));
      const bool hold = s.forward - s.backward >= p - i;
      if (can_enter && !hold) {
        s.actions.push_back({Action::forward, s.forward++});
        s.forward_at.push_back(now + 1);
      } else if (can_return) {
        s.actions.push_back({Action::backward, s.backward++});
        s.backward_at.push_back(now + 1);
      } else if (s.weights < s.backward) {
        s.actions.push_back({Action::weights, s.weights++});
      }
    }
  }
  return all[static_cast<size_t>(wanted)].actions;
}

}  // namespace

void validate(const ScheduleShape& shape) {
  const bool interleaved = shape.order == PipelineOrder::interleaved;
  if (shape.chunks > 1 && !interleaved)
    throw ConfigError("parallel.chunks is {}: only the schedule `interleaved` cuts a stage into chunks", shape.chunks);
  if (interleaved && shape.stages > 1 && shape.micros % shape.stages != 0)
    throw ConfigError(
        "the schedule `interleaved` goes through micro-batches in groups of parallel.pp: "
        "training.gradient_accumulation is {}, and parallel.pp is {}; set the former to a multiple of {}",
        shape.micros, shape.stages, shape.stages);
}

std::vector<Action> schedule(const ScheduleShape& shape, int stage) {
  if (shape.stages == 1) return accumulation(shape);
  const auto straight = [](int k, bool forward) { return Action{forward ? Action::forward : Action::backward, k}; };
  switch (shape.order) {
    case PipelineOrder::gpipe:
      return one_backward_each(shape, shape.micros, straight);
    case PipelineOrder::one_f_one_b:
      return one_backward_each(shape, std::min(shape.micros, shape.stages - stage - 1), straight);
    case PipelineOrder::interleaved:
      return one_backward_each(shape, interleaved_warmup(shape, stage),
                               [&](int k, bool forward) { return interleaved_pass(shape, k, forward); });
    case PipelineOrder::zero_bubble:
      return zero_bubble(shape, stage);
  }
  throw Bug("schedule {}", static_cast<int>(shape.order));
}

std::vector<int> assign_stacks(const std::vector<Action>& actions, bool split) {
  std::vector<int> stacks;
  std::vector<bool> taken;
  std::map<std::pair<int, int>, int> of;
  for (const Action& a : actions) {
    const std::pair key{a.micro, a.chunk};
    if (a.kind == Action::forward) {
      const auto free = std::ranges::find(taken, false);
      of[key] = static_cast<int>(free - taken.begin());
      if (free == taken.end())
        taken.push_back(true);
      else
        *free = true;
    }
    stacks.push_back(of.at(key));
    if (a.kind == (split ? Action::weights : Action::backward)) taken[static_cast<size_t>(of.at(key))] = false;
  }
  return stacks;
}

}  // namespace chiron
