#include "train/step.h"

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/norm/norm.h"

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
  const int last = static_cast<int>(micros.size()) - 1;
  for (Action a : schedule_) {
    switch (a.kind) {
      case Action::forward:
        forward(s, micros[static_cast<size_t>(a.micro)]);
        break;
      case Action::backward:
        backward(s, a.micro == last);
        break;
      case Action::weights:
        wgrads_.run();
        stacks_.saved.release(bottoms_[0]);
        break;
    }
  }
  tell(s, -1, false);
  params_.finish(s);
}

void TrainStep::forward(Stream& s, const Batch& batch) {
  Ctx c = context(s, Mode::train);
  View x;
  for (Unit u = 0; u < model_.units(); ++u) {
    const auto i = static_cast<size_t>(u);
    params_.use(s, u);
    bottoms_[i] = stacks_.saved.top();
    Saved& unit = saved_[i];
    unit = {.batch = &batch, .specs = model_.slots(u), .x = x, .slots = {}};
    for (int slot = 0; slot < static_cast<int>(unit.specs.size()); ++slot)
      unit[slot].keep = (setup_.policy[i] >> slot) & 1u;
    Tensor y =
        u == model_.head() ? Tensor{} : stacks_.saved.push(setup_.compute, {batch.rows(), model_.config().d_model});
    {
      Scope scope(stacks_.unit);
      c.at = u;
      tell(s, u, true);
      model_.forward(c, u, y, unit);
    }
    for (Slot& slot : unit.slots)
      if (!slot.keep) slot.forget();
    params_.done(s, u);
    x = y;
  }
}

void TrainStep::backward(Stream& s, bool last_micro) {
  Ctx c = context(s, Mode::train);
  c.in_forward = false;
  if (setup_.split_weight_gradients) c.deferred = &wgrads_;
  Scope scope(stacks_.temp);
  const Batch& batch = *saved_[0].batch;
  Tensor d = c.scratch({batch.rows(), model_.config().d_model});
  for (Unit u = model_.head(); u >= 0; --u) {
    const auto i = static_cast<size_t>(u);
    params_.use(s, u);
    {
      Scope unit(stacks_.unit);
      c.at = u;
      tell(s, u, false);
      model_.backward(c, u, d, saved_[i]);
    }
    for (Slot& slot : saved_[i].slots) slot.forget();
    params_.reduce(s, u, last_micro);
    params_.done(s, u);
    if (!c.deferred) stacks_.saved.release(bottoms_[i]);
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
