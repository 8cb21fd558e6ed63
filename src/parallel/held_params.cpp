#include "parallel/held_params.h"

#include <algorithm>

namespace chiron {
namespace {

Shape with_rows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

HeldParams::HeldParams(Stream& s, std::span<const ParamSpec> specs, const StoreSetup& setup, Layout layout)
    : specs_(specs),
      layout_(layout),
      index_(specs.size(), -1),
      memory_{Stack::dry(0), Stack::dry(1), Stack::dry(2), Stack::dry(3), Stack::dry(4)} {
  choose(setup.units);
  lay_out(setup.compute, setup.kind);
  if (s.dry()) return;
  for (Stack& stack : memory_) {
    stack = Stack(s.device(), stack.peak());
    // Padding stays zero, and Adam's moments begin so. The CPU's memory is fresh from the kernel.
    Scope scope(stack);
    if (s.on_gpu() && stack.capacity() > 0) s.fill_bytes(stack.push(DType::u8, {stack.capacity()}), 0);
  }
  lay_out(setup.compute, setup.kind);
}

const HeldParam& HeldParams::at(Param p) const {
  const int i = find(p);
  CHECK(i >= 0, "this rank does not hold parameter {}", p);
  return params_[static_cast<size_t>(i)];
}

/// Which parameters this rank holds, and for which units.
void HeldParams::choose(const std::vector<UnitRange>& units) {
  auto owner = [&](Param p) {
    const Param tied = specs_[static_cast<size_t>(p)].tied_to;
    return static_cast<size_t>(tied == kNoParam ? p : tied);
  };
  std::vector<std::vector<Unit>> users(specs_.size());  // by owner
  for (Param p = 0; p < static_cast<Param>(specs_.size()); ++p) {
    const Unit u = specs_[static_cast<size_t>(p)].unit;
    last_unit_ = std::max(last_unit_, u);
    if (u != kEveryUnit && (units.empty() || std::ranges::any_of(units, [&](UnitRange r) { return r.contains(u); })))
      users[owner(p)].push_back(u);
  }
  used_by_.resize(static_cast<size_t>(last_unit_) + 1);
  completed_by_.resize(static_cast<size_t>(last_unit_) + 1);
  for (Param p = 0; p < static_cast<Param>(specs_.size()); ++p) {
    const ParamSpec& spec = specs_[static_cast<size_t>(p)];
    HeldParam h{.param = p, .users = users[static_cast<size_t>(p)]};
    if (spec.tied_to != kNoParam || (spec.unit != kEveryUnit && h.users.empty())) continue;
    const int place = index_[static_cast<size_t>(p)] = static_cast<int>(params_.size());
    std::ranges::sort(h.users);
    h.ring = h.users.size() == 1 && ring_unit(h.users.front());
    for (Unit u : h.users) used_by_[static_cast<size_t>(u)].push_back(place);
    if (!h.constant()) completed_by_[static_cast<size_t>(h.last_user())].push_back(place);
    params_.push_back(std::move(h));
  }
  for (Param p = 0; p < static_cast<Param>(specs_.size()); ++p) index_[static_cast<size_t>(p)] = index_[owner(p)];
}

HeldParams::Cut HeldParams::cut_of(const HeldParam& h) const {
  const Shape& shape = specs_[static_cast<size_t>(h.param)].shape;
  const int64_t ranks = h.constant() ? 1 : layout_.ranks, share = (shape[0] + ranks - 1) / ranks;
  const int64_t from = h.constant() ? 0 : layout_.rank * share;
  return {with_rows(shape, share * ranks), with_rows(shape, share), from,
          std::clamp<int64_t>(shape[0] - from, 0, share)};
}

void HeldParams::lay_out_weight(HeldParam& h, DType compute, bool trained) {
  const Cut cut = cut_of(h);
  const int64_t end = cut.from + cut.share[0];
  // A model in f64 (tests only) has f64 masters and state.
  const DType wide = h.constant() ? DType::f32 : acc_dtype(compute);
  const bool narrow = compute != wide && !h.constant(), stays = h.constant() || !layout_.pass_weights;
  Stack& forms = memory_[narrow ? kCompute : kWeights];
  if (stays) {
    h.weight = forms.push(narrow ? compute : wide, cut.whole);
    h.weight_share = h.weight.slice(cut.from, end);
  } else {
    h.weight_share = forms.push(narrow ? compute : wide, cut.share);
  }
  const Tensor master = narrow ? memory_[kWeights].push(wide, cut.share) : h.weight_share;
  const ParamSpec& spec = specs_[static_cast<size_t>(h.param)];
  h.shard = {.param = h.param, .first_row = cut.from, .master = master.slice(0, cut.rows), .decay = spec.decay};
  if (narrow) h.shard.compute = h.weight_share.slice(0, cut.rows);
  if (!trained) return;
  h.shard.m = memory_[kMoments].push(wide, cut.share).slice(0, cut.rows);
  h.shard.v = memory_[kMoments].push(wide, cut.share).slice(0, cut.rows);
}

void HeldParams::lay_out_gradient(HeldParam& h, DType wide) {
  const Cut cut = cut_of(h);
  if (layout_.pass_gradients) {
    h.grad_share = memory_[kGradients].push(wide, cut.share);
  } else {
    h.grad = memory_[kGradients].push(wide, cut.whole);
    h.grad_share = h.grad.slice(cut.from, cut.from + cut.share[0]);
  }
  h.shard.grad = h.grad_share.slice(0, cut.rows);
}

/// Calls place(h, memory) for every parameter but constants: those of the ring with units of one parity get the same
/// memory in turns.
template <class F>
void HeldParams::lay_out_passing(F&& place) {
  Stack& stack = memory_[kBuffers];
  for (HeldParam& h : params_)
    if (!h.ring && !h.constant()) place(h, stack);
  for (int parity : {0, 1}) {
    const int64_t bottom = stack.top();
    int64_t top = bottom;
    for (Unit u = parity; u <= last_unit_; u += 2) {
      stack.release(bottom);
      for (int i : completed_by(u))
        if (HeldParam& h = params_[static_cast<size_t>(i)]; h.ring) place(h, stack);
      top = std::max(top, stack.top());
    }
    stack.release(bottom);
    if (top > bottom) stack.push(DType::u8, {top - bottom});
  }
}

void HeldParams::lay_out(DType compute, StateKind kind) {
  auto trained = [&](const HeldParam& h) {
    return kind == StateKind::training && specs_[static_cast<size_t>(h.param)].trainable && !h.constant();
  };
  const DType wide = acc_dtype(compute);
  for (HeldParam& h : params_) lay_out_weight(h, compute, trained(h));
  for (Unit u = 0; u <= last_unit_; ++u)  // a unit's gradients lie side by side
    for (int i : completed_by(u))
      if (HeldParam& h = params_[static_cast<size_t>(i)]; trained(h)) lay_out_gradient(h, wide);
  if (layout_.pass_weights)
    lay_out_passing([&](HeldParam& h, Stack& stack) { h.weight = stack.push(h.weight_share.dtype, cut_of(h).whole); });
  if (layout_.pass_gradients)
    lay_out_passing([&](HeldParam& h, Stack& stack) {
      if (trained(h)) h.grad = stack.push(wide, cut_of(h).whole);
    });
}

std::vector<Tensor> HeldParams::gradient_runs(Unit u) const {
  std::vector<Tensor> runs;
  const bool apart = layout_.ranks > 1 && !layout_.pass_gradients;  // other ranks' rows lie between
  for (int i : completed_by(u)) {
    const HeldParam& h = params_[static_cast<size_t>(i)];
    if (!h.grad.present()) continue;
    const Tensor& t = h.grad_share;
    const int64_t numel = t.numel();
    if (runs.empty() || apart) {
      runs.push_back(t.reshape({numel}));
    } else {
      Tensor& run = runs.back();
      run.shape[0] = static_cast<int64_t>(t.at - run.at) / size_of(t.dtype) + numel;
    }
  }
  return runs;
}

StoreBytes HeldParams::bytes() const {
  return {.weights = memory_[kWeights].peak() + memory_[kCompute].peak(),
          .gradients = memory_[kGradients].peak(),
          .optimizer = memory_[kMoments].peak(),
          .buffers = memory_[kBuffers].peak()};
}

}  // namespace chiron
