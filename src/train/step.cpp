#include "train/step.h"

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/norm/norm.h"
#include "train/device_batch.h"

namespace chiron {
namespace {

Tensor tokens_of(StepScalars* scalars) { return {reinterpret_cast<uintptr_t>(&scalars->tokens), DType::i32, {1}}; }

void tell(Stream& s, Unit u, bool forward) {
  if (s.trace()) s.trace()->unit(u, forward);
}

}  // namespace

View forward_blocks(Ctx& c, const Model& model, const Batch& batch) {
  const Shape shape{batch.rows(), model.config().d_model};
  Tensor y[2] = {c.saved.push(c.compute, shape), c.saved.push(c.compute, shape)};
  View x;
  for (Unit u = 0; u < model.head(); ++u) {
    c.at = u;
    c.params.use(c.s, u);
    Saved unit{.batch = &batch, .specs = model.slots(u), .x = x, .slots = {}};
    Scope scope(c.unit);
    model.forward(c, u, y[u % 2], unit);
    c.params.done(c.s, u);
    x = y[u % 2];
  }
  return x;
}

TrainStep::TrainStep(const Model& model, ParamStore& params, Communicator& tp, Setup setup, Stacks stacks,
                     StepScalars* scalars)
    : model_(model),
      params_(params),
      tp_(tp),
      setup_(std::move(setup)),
      stacks_(std::move(stacks)),
      scalars_(scalars),
      saved_(static_cast<size_t>(model.units())),
      bottoms_(static_cast<size_t>(model.units())) {
  CHECK(setup_.policy.size() == saved_.size());
}

void TrainStep::set_poison(Stream* stream) {
  for (Stack* stack : {&stacks_.saved, &stacks_.unit, &stacks_.temp}) stack->set_poison(stream);
}

Ctx TrainStep::context(Stream& s, Mode mode) {
  return {.s = s,
          .saved = stacks_.saved,
          .unit = stacks_.unit,
          .temp = stacks_.temp,
          .tp = tp_,
          .params = params_,
          .scalars = scalars_,
          .compute = setup_.compute,
          .mode = mode};
}

void TrainStep::run(Stream& s, std::span<const Batch> micros) {
  // The first step runs op by op: it loads code, and libraries take what they need.
  const bool can_replay = s.on_gpu() && !s.dry() && !s.trace() && warm_;
  replaying_ = can_replay ? setup_.graphs : Graphs::off;
  warm_ = !s.dry();
  if (replaying_ != Graphs::step) return whole(s, micros);
  if (step_graph_.empty()) {
    step_graph_.capture(s, [&] { whole(s, micros); });
    captured_ = micros.data();
  }
  CHECK(captured_ == micros.data(), "a captured step runs on the batches of its first time");
  step_graph_.launch(s, "a training step as a graph (run.graphs: off names the op)");
}

/// A unit's pass over a micro-batch.
template <class F>
void TrainStep::region(Stream& s, Action::Kind kind, Unit u, Place place, F&& work) {
  if (replaying_ != Graphs::unit) return work(s);
  const size_t key =
      ((static_cast<size_t>(kind) * saved_.size() + static_cast<size_t>(u)) * 2 + place.first) * 2 + place.last;
  unit_graphs_.resize(4 * 3 * saved_.size());
  Graph& graph = unit_graphs_[key];
  const bool fresh = graph.empty();
  if (fresh) graph.capture(s, [&] { work(s); });
  graph.launch(s, "a unit as a graph (run.graphs: off names the op)");
  if (fresh) return;
  // Slots, stacks and store shall stand as they did after the capture: the same calls, on a stream that runs nothing.
  if (!muted_) muted_.emplace(Stream::dry_like(s));
  work(*muted_);
}

void TrainStep::whole(Stream& s, std::span<const Batch> micros) {
  gradients(s, micros);
  squared_norm(s, scalars_, params_.shards(), stacks_.temp);
  step_decide(s, scalars_);
  adamw(s, scalars_, params_.shards(), setup_.adamw);
  params_.publish(s);
}

void TrainStep::gradients(Stream& s, std::span<const Batch> micros) {
  // The loss is a mean over all labels of the step, so they are counted before the first micro-batch.
  for (size_t m = 0; m < micros.size(); ++m) count_labels(s, tokens_of(scalars_), m == 0, micros[m].labels);
  step_begin(s, scalars_);
  params_.begin_step();
  if (schedule_.empty())
    schedule_ = accumulation_schedule(static_cast<int>(micros.size()), setup_.split_weight_gradients);
  for (Action a : schedule_) {
    const Place place{a.micro == 0, a.micro + 1 == std::ssize(micros)};
    switch (a.kind) {
      case Action::forward:
        forward(s, micros[static_cast<size_t>(a.micro)], place);
        break;
      case Action::backward:
        backward(s, place);
        break;
      case Action::weights:
        region(s, a.kind, 0, place, [&](Stream&) { wgrads_.run(); });
        stacks_.saved.release(bottoms_[0]);
        break;
    }
  }
  tell(s, -1, false);
  params_.finish(s);
}

void TrainStep::forward(Stream& s, const Batch& from, Place place) {
  const int64_t bottom = stacks_.saved.top();
  const Batch& batch = held_;
  held_ = from;
  if (setup_.graphs == Graphs::unit && s.on_gpu()) {
    // A graph serves all micro-batches, so they come to the same place.
    held_ = push_batch(stacks_.saved, from.sequences, from.length, from.starts.present());
    for_each_array(held_, from, [&](View to, View array) { s.copy({to.at, to.dtype, to.shape}, array); });
  }
  View x;
  for (Unit u = 0; u < model_.units(); ++u) {
    const auto i = static_cast<size_t>(u);
    params_.use(s, u);
    bottoms_[i] = u == 0 ? bottom : stacks_.saved.top();
    Saved& unit = saved_[i];
    unit = {.batch = &batch, .specs = model_.slots(u), .x = x, .slots = {}};
    for (int slot = 0; slot < static_cast<int>(unit.specs.size()); ++slot)
      unit[slot].keep = (setup_.policy[i] >> slot) & 1u;
    Tensor y =
        u == model_.head() ? Tensor{} : stacks_.saved.push(setup_.compute, {batch.rows(), model_.config().d_model});
    tell(s, u, true);
    region(s, Action::forward, u, place, [&](Stream& on) {
      Ctx c = context(on, Mode::train);
      c.at = u;
      Scope scope(stacks_.unit);
      model_.forward(c, u, y, unit);
    });
    for (Slot& slot : unit.slots)
      if (!slot.keep) slot.forget();
    params_.done(s, u);
    x = y;
  }
}

void TrainStep::backward(Stream& s, Place place) {
  Scope scope(stacks_.temp);
  Tensor d = stacks_.temp.push(setup_.compute, {held_.rows(), model_.config().d_model});
  for (Unit u = model_.head(); u >= 0; --u) {
    const auto i = static_cast<size_t>(u);
    params_.use(s, u);
    tell(s, u, false);
    region(s, Action::backward, u, place, [&](Stream& on) {
      Ctx c = context(on, Mode::train);
      c.at = u;
      c.in_forward = false;
      if (setup_.split_weight_gradients) c.deferred = &wgrads_;
      Scope unit(stacks_.unit);
      model_.backward(c, u, d, saved_[i]);
    });
    for (Slot& slot : saved_[i].slots) slot.forget();
    params_.reduce(s, u, place.last);
    params_.done(s, u);
    if (!setup_.split_weight_gradients) stacks_.saved.release(bottoms_[i]);
  }
}

void TrainStep::evaluate(Stream& s, const Batch& batch) {
  Ctx c = context(s, Mode::evaluate);
  count_labels(s, tokens_of(scalars_), false, batch.labels);
  Scope scope(stacks_.saved);
  Saved head{.batch = &batch, .specs = model_.slots(model_.head()), .x = forward_blocks(c, model_, batch), .slots = {}};
  c.at = model_.head();
  params_.use(s, c.at);
  model_.forward(c, c.at, {}, head);
  params_.done(s, c.at);
}

}  // namespace chiron
