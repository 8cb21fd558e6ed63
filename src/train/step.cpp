#include "train/step.h"

#include <algorithm>

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

View forward_units(Ctx& c, const Model& model, const Batch& batch, UnitRange units, View x) {
  const int64_t share = c.sequence ? c.tp.size() : 1;
  const Shape shape{batch.rows() / share, model.config().d_model};
  Tensor y[2] = {c.saved.push(c.compute, shape), c.saved.push(c.compute, shape)};
  for (Unit u = units.first; u < std::min(units.last, model.head()); ++u) {
    c.at = u;
    c.params.use(c.s, u);
    if (u + 1 < units.last) c.params.fetch(c.s, u + 1);
    Saved unit{.batch = &batch, .specs = model.slots(u), .x = x, .slots = {}};
    Scope scope(c.unit);
    model.forward(c, u, y[u % 2], unit);
    c.params.done(c.s, u);
    x = y[u % 2];
  }
  return x;
}

TrainStep::TrainStep(const Model& model, ParamStore& params, Mesh& mesh, Setup setup, std::optional<Stacks> stacks,
                     StepScalars* scalars)
    : model_(model),
      params_(params),
      mesh_(mesh),
      setup_(std::move(setup)),
      scalars_(scalars),
      stages_(mesh.size(Axis::pp)),
      stage_(mesh.index(Axis::pp)),
      parts_(cut_units(model.units(), stages_, stages_ > 1 ? setup_.chunks : 1)),
      stacks_(Stacks::dry(0)) {
  CHECK(std::ssize(setup_.policy) == model.units());
  const ScheduleShape shape{setup_.order, stages_, setup_.chunks, setup_.micros, setup_.split_weight_gradients};
  validate(shape);
  setup_.split_weight_gradients = shape.splits();
  actions_ = schedule(shape, stage_);
  stack_of_ = assign_stacks(actions_, shape.splits());
  const int in_flight = *std::ranges::max_element(stack_of_) + 1;
  if (in_flight > Stacks::kMostInFlight)
    throw ConfigError("the schedule holds {} micro-batches at once, at most {} are possible: take 1f1b or zero_bubble",
                      in_flight, Stacks::kMostInFlight);
  stacks_ = stacks ? std::move(*stacks) : Stacks::dry(in_flight);
  CHECK(std::ssize(stacks_.saved) == in_flight);
  flights_.resize(static_cast<size_t>(in_flight));
  for (Flight& f : flights_) {
    f.saved.resize(static_cast<size_t>(model.units()));
    f.bottoms.resize(static_cast<size_t>(model.units()));
  }
  if (stages_ > 1) returns_ = mesh.group(Axis::pp).split(0, stage_, "pp back");
}

void TrainStep::set_poison(Stream* stream) {
  for (Stack& stack : stacks_.saved) stack.set_poison(stream);
  for (Stack* stack : {&stacks_.unit, &stacks_.temp}) stack->set_poison(stream);
}

Ctx TrainStep::context(Stream& s, Mode mode, Stack& saved) {
  return {.s = s,
          .saved = saved,
          .unit = stacks_.unit,
          .temp = stacks_.temp,
          .tp = mesh_.group(Axis::tp),
          .cp = mesh_.group(Axis::cp),
          .sequence = setup_.sequence_parallel,
          .params = params_,
          .scalars = scalars_,
          .compute = setup_.compute,
          .mode = mode};
}

int64_t TrainStep::rows(const Batch& batch) const {
  return batch.rows() / (setup_.sequence_parallel ? mesh_.size(Axis::tp) : 1);
}

bool TrainStep::counts_loss() const { return stage_ + 1 == stages_ && mesh_.index(Axis::tp) == 0; }

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
void TrainStep::region(Stream& s, Action::Kind kind, Unit u, int stack, Place place, F&& work) {
  if (replaying_ != Graphs::unit) return work(s);
  const auto units = static_cast<size_t>(model_.units()), stacks = stacks_.saved.size();
  const size_t unit =
      (static_cast<size_t>(kind) * units + static_cast<size_t>(u)) * stacks + static_cast<size_t>(stack);
  unit_graphs_.resize(3 * units * stacks * 4);
  Graph& graph = unit_graphs_[(unit * 2 + place.first) * 2 + place.last];
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
  squared_norm(s, scalars_, params_.counted(), stacks_.temp);
  const Tensor sums{reinterpret_cast<uintptr_t>(scalars_->sums), DType::f32, {2}};
  if (!counts_loss()) s.fill_zero(sums.slice(1, 2));
  if (mesh_.size(Axis::all) > 1) mesh_.group(Axis::all).all_reduce(s, sums, Reduce::sum);
  step_decide(s, scalars_);
  adamw(s, scalars_, params_.shards(), setup_.adamw);
  params_.publish(s);
}

void TrainStep::gradients(Stream& s, std::span<const Batch> micros) {
  CHECK(std::ssize(micros) == setup_.micros);
  // The loss is a mean over all labels of the step, so they are counted before the first micro-batch.
  for (size_t m = 0; m < micros.size(); ++m) count_labels(s, tokens_of(scalars_), m == 0, micros[m].labels);
  if (mesh_.size(Axis::data) > 1) mesh_.group(Axis::data).all_reduce(s, tokens_of(scalars_), Reduce::sum);
  step_begin(s, scalars_);
  params_.begin_step();
  Scope scope(stacks_.temp);
  if (stages_ > 1)
    for (Outbox& box : outboxes_) box.d = stacks_.temp.push(setup_.compute, {rows(micros[0]), model_.config().d_model});
  for (size_t i = 0; i < actions_.size(); ++i) {
    const Action& a = actions_[i];
    const int stack = stack_of_[i];
    const Place place{a.micro == 0, a.micro + 1 == setup_.micros};
    Flight& f = flights_[static_cast<size_t>(stack)];
    switch (a.kind) {
      case Action::forward:
        forward(s, a, stack, micros[static_cast<size_t>(a.micro)], place);
        break;
      case Action::backward:
        backward(s, a, stack, place);
        break;
      case Action::weights: {
        const UnitRange units = parts_[static_cast<size_t>(part_of(a))];
        tell(s, units.last - 1, false);
        region(s, a.kind, units.first, stack, place, [&](Stream&) { f.wgrads.run(); });
        for (Unit u = units.last - 1; u >= units.first; --u) params_.reduce(s, u, place.last);
        stacks_.saved[static_cast<size_t>(stack)].release(f.bottoms[static_cast<size_t>(units.first)]);
        break;
      }
    }
  }
  if (returns_)
    for (const Outbox& box : outboxes_) returns_->wait_sent(s, box.sent);
  tell(s, -1, false);
  params_.finish(s);
}

void TrainStep::forward(Stream& s, const Action& a, int stack, const Batch& from, Place place) {
  Flight& f = flights_[static_cast<size_t>(stack)];
  Stack& saved = stacks_.saved[static_cast<size_t>(stack)];
  const int part = part_of(a);
  const UnitRange units = parts_[static_cast<size_t>(part)];
  const int64_t bottom = saved.top();
  f.batch = from;
  if (setup_.graphs == Graphs::unit && s.on_gpu()) {
    // A graph serves all micro-batches, so they come to the same place.
    f.batch = push_batch(saved, from.sequences, from.length, from.starts.present());
    for_each_array(f.batch, from, [&](View to, View array) { s.copy({to.at, to.dtype, to.shape}, array); });
  }
  const Shape shape{rows(from), model_.config().d_model};
  View x;
  if (!is_first(part)) {
    Tensor in = saved.push(setup_.compute, shape);
    mesh_.group(Axis::pp).receive(s, in, neighbour(-1));
    x = in;
  }
  for (Unit u = units.first; u < units.last; ++u) {
    const auto i = static_cast<size_t>(u);
    params_.use(s, u);
    if (u + 1 < units.last) params_.fetch(s, u + 1);
    f.bottoms[i] = u == units.first ? bottom : saved.top();
    Saved& unit = f.saved[i];
    unit = {.batch = &f.batch, .specs = model_.slots(u), .x = x, .slots = {}};
    for (int slot = 0; slot < static_cast<int>(unit.specs.size()); ++slot)
      unit[slot].keep = (setup_.policy[i] >> slot) & 1u;
    Tensor y = u == model_.head() ? Tensor{} : saved.push(setup_.compute, shape);
    tell(s, u, true);
    region(s, Action::forward, u, stack, place, [&](Stream& on) {
      Ctx c = context(on, Mode::train, saved);
      c.at = u;
      Scope scope(stacks_.unit);
      model_.forward(c, u, y, unit);
    });
    for (Slot& slot : unit.slots)
      if (!slot.keep) slot.forget();
    params_.done(s, u);
    x = y;
  }
  if (!is_last(part)) f.sent = mesh_.group(Axis::pp).send(s, x, neighbour(1));
}

void TrainStep::backward(Stream& s, const Action& a, int stack, Place place) {
  Flight& f = flights_[static_cast<size_t>(stack)];
  Stack& saved = stacks_.saved[static_cast<size_t>(stack)];
  const int part = part_of(a);
  const UnitRange units = parts_[static_cast<size_t>(part)];
  Scope scope(stacks_.temp);
  Outbox* box = stages_ > 1 ? &outboxes_[next_outbox_++ % outboxes_.size()] : nullptr;
  if (box) returns_->wait_sent(s, box->sent);
  Tensor d = box ? box->d : stacks_.temp.push(setup_.compute, {rows(f.batch), model_.config().d_model});
  if (!is_last(part)) {
    returns_->receive(s, d, neighbour(1));
    mesh_.group(Axis::pp).wait_sent(s, f.sent);  // long taken: its gradient has come
  }
  for (Unit u = units.last - 1; u >= units.first; --u) {
    const auto i = static_cast<size_t>(u);
    params_.use(s, u);
    if (u > units.first) params_.fetch(s, u - 1);
    tell(s, u, false);
    region(s, Action::backward, u, stack, place, [&](Stream& on) {
      Ctx c = context(on, Mode::train, saved);
      c.at = u;
      c.in_forward = false;
      if (setup_.split_weight_gradients) c.deferred = &f.wgrads;
      Scope unit(stacks_.unit);
      model_.backward(c, u, d, f.saved[i]);
    });
    for (Slot& slot : f.saved[i].slots) slot.forget();
    params_.done(s, u);
    if (setup_.split_weight_gradients) continue;
    params_.reduce(s, u, place.last);
    saved.release(f.bottoms[i]);
  }
  if (!is_first(part)) box->sent = returns_->send(s, d, neighbour(-1));
}

void TrainStep::evaluate(Stream& s, const Batch& batch) {
  Stack& saved = stacks_.saved.front();
  Ctx c = context(s, Mode::evaluate, saved);
  if (counts_loss()) count_labels(s, tokens_of(scalars_), false, batch.labels);
  for (int part = stage_; part < std::ssize(parts_); part += stages_) {
    const UnitRange units = parts_[static_cast<size_t>(part)];
    Scope scope(saved);
    Tensor in;
    if (!is_first(part)) {
      in = saved.push(setup_.compute, {rows(batch), model_.config().d_model});
      mesh_.group(Axis::pp).receive(s, in, neighbour(-1));
    }
    const View x = forward_units(c, model_, batch, units, in);
    if (!is_last(part)) {
      mesh_.group(Axis::pp).wait_sent(s, mesh_.group(Axis::pp).send(s, x, neighbour(1)));
      continue;
    }
    Saved head{.batch = &batch, .specs = model_.slots(model_.head()), .x = x, .slots = {}};
    c.at = model_.head();
    params_.use(s, c.at);
    model_.forward(c, c.at, {}, head);
    params_.done(s, c.at);
  }
}

}  // namespace chiron
