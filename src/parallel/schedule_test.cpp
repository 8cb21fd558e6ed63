#include "parallel/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"

namespace chiron {
namespace {

struct Played {
  int ticks = 0;               // until the last stage's last action
  std::vector<int> idle;       // ticks of each stage in which it waits, up to its own last action
  std::vector<int> in_flight;  // most micro-batches and chunks between forward and their last action, of each stage
};

/// Runs all stages side by side, a tick per action (`ticks` of its kind): each waits for what its action needs from
/// other stages, and a backward pass for one of the buffers of gradients. Fails if they wait for each other for ever.
Played play(const ScheduleShape& shape, std::array<int, 3> ticks = {1, 1, 1}) {
  const int p = shape.stages, parts = p * shape.chunks;
  std::vector<std::vector<Action>> todo;
  for (int stage = 0; stage < p; ++stage) todo.push_back(schedule(shape, stage));
  std::vector<std::vector<std::pair<int, int>>> sent(static_cast<size_t>(p));  // gradients: part and micro, in order
  std::map<std::tuple<int, int, int>, int> done;                               // kind, part, micro -> when
  std::vector<size_t> next(static_cast<size_t>(p), 0);
  std::vector<int> busy_until(static_cast<size_t>(p), 0), flying(static_cast<size_t>(p), 0);
  Played result{0, std::vector<int>(static_cast<size_t>(p), 0), std::vector<int>(static_cast<size_t>(p), 0)};
  for (int now = 0; now < 10000; ++now) {
    bool all_done = true;
    for (int stage = 0; stage < p; ++stage) {
      const auto i = static_cast<size_t>(stage);
      if (next[i] == todo[i].size()) continue;
      all_done = false;
      if (busy_until[i] > now) continue;
      const Action a = todo[i][next[i]];
      const int part = a.chunk * p + stage;
      auto at = [&](int kind, int of) {
        const auto it = done.find({kind, of, a.micro});
        return it != done.end() && it->second <= now;
      };
      // The stage before takes a gradient when it starts to go back.
      auto taken = [&](std::pair<int, int> of) {
        return of.first == 0 || done.contains({Action::backward, of.first - 1, of.second});
      };
      bool ready = true;
      if (a.kind == Action::forward) ready = part == 0 || at(Action::forward, part - 1);
      if (a.kind == Action::backward)
        ready = at(Action::forward, part) && (part + 1 == parts || at(Action::backward, part + 1)) &&
                (std::ssize(sent[i]) < kGradientBuffers || taken(*(sent[i].end() - kGradientBuffers)));
      if (a.kind == Action::weights) ready = at(Action::backward, part);
      if (!ready) {
        ++result.idle[i];
        continue;
      }
      const int end = now + ticks[a.kind];
      EXPECT_TRUE(done.emplace(std::tuple{a.kind, part, a.micro}, end).second) << "twice";
      busy_until[i] = end;
      if (a.kind == Action::backward) sent[i].emplace_back(part, a.micro);
      result.ticks = std::max(result.ticks, end);
      if (a.kind == Action::forward) result.in_flight[i] = std::max(result.in_flight[i], ++flying[i]);
      if (a.kind == (shape.splits() ? Action::weights : Action::backward)) --flying[i];
      ++next[i];
    }
    if (all_done) {
      const int kinds = shape.splits() ? 3 : 2;
      EXPECT_EQ(std::ssize(done), kinds * parts * shape.micros);
      return result;
    }
  }
  ADD_FAILURE() << "the stages wait for each other";
  return result;
}

std::vector<ScheduleShape> shapes() {
  std::vector<ScheduleShape> all;
  for (auto order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b, PipelineOrder::zero_bubble})
    for (int stages : {1, 2, 3, 4, 8})
      for (int micros : {1, 2, 3, 5, 8, 17})
        for (bool split : {false, true}) all.push_back({order, stages, 1, micros, split});
  for (int stages : {2, 3, 4})
    for (int chunks : {1, 2, 3})
      for (int groups : {1, 2, 3})
        for (bool split : {false, true})
          all.push_back({PipelineOrder::interleaved, stages, chunks, groups * stages, split});
  return all;
}

TEST(Schedule, EveryOrderEndsAndDoesEachThingOnce) {
  for (const ScheduleShape& shape : shapes()) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(shape.order) << " stages " << shape.stages << " chunks "
                                    << shape.chunks << " micros " << shape.micros << " split " << shape.split);
    play(shape);
  }
}

TEST(Schedule, MicroBatchesOfAChunkComeInOrder) {
  for (const ScheduleShape& shape : shapes())
    for (int stage = 0; stage < shape.stages; ++stage) {
      std::map<std::pair<int, int>, int> last;
      for (const Action& a : schedule(shape, stage)) {
        auto [it, first] = last.try_emplace({a.kind, a.chunk}, a.micro);
        EXPECT_EQ(a.micro, first ? 0 : it->second + 1);
        it->second = a.micro;
      }
    }
}

TEST(Schedule, OneStageIsAccumulation) {
  using testing::ElementsAre;
  for (auto order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b, PipelineOrder::zero_bubble})
    EXPECT_THAT(schedule({order, 1, 1, 2}, 0), ElementsAre(Action{Action::forward, 0}, Action{Action::backward, 0},
                                                           Action{Action::forward, 1}, Action{Action::backward, 1}));
  EXPECT_THAT(schedule({.micros = 1, .split = true}, 0),
              ElementsAre(Action{Action::forward, 0}, Action{Action::backward, 0}, Action{Action::weights, 0}));
}

TEST(Schedule, GpipeKeepsAllMicroBatchesAndOneFOneBAsManyAsStages) {
  for (int stages : {2, 4, 8})
    for (int micros : {2, 4, 16}) {
      const Played gpipe = play({PipelineOrder::gpipe, stages, 1, micros});
      const Played pipedream = play({PipelineOrder::one_f_one_b, stages, 1, micros});
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(gpipe.in_flight[static_cast<size_t>(stage)], micros);
        EXPECT_EQ(pipedream.in_flight[static_cast<size_t>(stage)], std::min(micros, stages - stage));
      }
    }
}

TEST(Schedule, BubblesAreThoseOfTheFormulas) {
  // With backward twice as long as forward, (p - 1) (F + B) of m (F + B) are lost; chunks divide it.
  for (int p : {2, 4, 8})
    for (int m : {8, 16}) {
      const int work = 3;
      EXPECT_EQ(play({PipelineOrder::gpipe, p, 1, m}, {1, 2, 0}).ticks, (m + p - 1) * work);
      EXPECT_EQ(play({PipelineOrder::one_f_one_b, p, 1, m}, {1, 2, 0}).ticks, (m + p - 1) * work);
      for (int v : {2, 4})
        EXPECT_EQ(play({PipelineOrder::interleaved, p, v, m}, {1, 2, 0}).ticks, (m * v + p - 1) * work)
            << p << " stages, " << v << " chunks, " << m;
    }
}

TEST(Schedule, ZeroBubbleLosesHalfOfSplit1F1BAndKeepsNoMoreThanItsFirstStage) {
  for (int p : {2, 3, 4, 8})
    for (int m : {2 * p, 4 * p}) {
      const Played split = play({PipelineOrder::one_f_one_b, p, 1, m, true});
      const Played zero = play({PipelineOrder::zero_bubble, p, 1, m});
      EXPECT_EQ(split.ticks, 3 * m + 2 * (p - 1));
      EXPECT_EQ(zero.ticks, 3 * m + (p - 1)) << p << " stages, " << m;
      for (int in_flight : zero.in_flight) EXPECT_LE(in_flight, p);
    }
}

TEST(Schedule, StacksAreGivenBack) {
  for (const ScheduleShape& shape : shapes()) {
    const Played played = play(shape);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const auto actions = schedule(shape, stage);
      const auto stacks = assign_stacks(actions, shape.splits());
      EXPECT_EQ(*std::ranges::max_element(stacks) + 1, played.in_flight[static_cast<size_t>(stage)]);
      std::map<std::pair<int, int>, int> of;  // each micro-batch and chunk stays where it is
      std::set<int> taken;
      for (size_t i = 0; i < actions.size(); ++i) {
        const std::pair key{actions[i].micro, actions[i].chunk};
        if (actions[i].kind == Action::forward) {
          EXPECT_TRUE(taken.insert(stacks[i]).second);
          of[key] = stacks[i];
        }
        EXPECT_EQ(of.at(key), stacks[i]);
        if (actions[i].kind == (shape.splits() ? Action::weights : Action::backward)) taken.erase(stacks[i]);
      }
      EXPECT_TRUE(taken.empty());
    }
  }
}

TEST(Schedule, ImpossibleOnesAreRefused) {
  EXPECT_THROW(validate({PipelineOrder::gpipe, 2, 2, 4}), ConfigError);
  EXPECT_THROW(validate({PipelineOrder::interleaved, 4, 2, 6}), ConfigError);
  EXPECT_NO_THROW(validate({PipelineOrder::interleaved, 4, 2, 8}));
  EXPECT_NO_THROW(validate({PipelineOrder::one_f_one_b, 4, 1, 1}));
}

}  // namespace
}  // namespace chiron
