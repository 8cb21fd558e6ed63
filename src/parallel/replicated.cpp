#include "parallel/replicated.h"

#include "ops/cast/cast.h"

namespace chiron {

Replicated::Replicated(Stream& s, std::span<const ParamSpec> specs, DType compute, StateKind kind)
    : specs_(specs), memory_{Stack::dry(0), Stack::dry(1), Stack::dry(2), Stack::dry(3)}, used_(specs.size()) {
  lay_out(s, compute, kind);
  if (s.dry()) return;
  for (Stack& stack : memory_) stack = Stack(s.device(), stack.peak());
  lay_out(s, compute, kind);
  // Padding stays zero, and Adam's moments begin so. The CPU's memory is fresh from the kernel.
  if (!s.on_gpu()) return;
  for (const Shard& shard : by_param_)
    for (const Tensor& t : {shard.master, shard.compute, shard.grad, shard.m, shard.v})
      if (t.present()) s.fill_bytes(t, 0);
}

void Replicated::lay_out(Stream& s, DType compute, StateKind kind) {
  by_param_.clear();
  owned_.clear();
  trained_.clear();
  for (Param p = 0; p < static_cast<Param>(specs_.size()); ++p) {
    const ParamSpec& spec = specs_[static_cast<size_t>(p)];
    Shard& shard = by_param_.emplace_back();
    if (spec.tied_to != kNoParam) continue;
    const bool constant = spec.unit == kEveryUnit;
    // A model in f64 (tests only) has f64 masters and state.
    const DType wide = constant ? DType::f32 : acc_dtype(compute);
    shard = {.param = p, .master = memory_[kWeights].push(wide, spec.shape), .decay = spec.decay};
    if (compute != wide && !constant) shard.compute = memory_[kCompute].push(compute, spec.shape);
    if (kind == StateKind::training && spec.trainable) {
      shard.grad = memory_[kGradients].push(wide, spec.shape);
      shard.m = memory_[kMoments].push(wide, spec.shape);
      shard.v = memory_[kMoments].push(wide, spec.shape);
      trained_.push_back(shard);
    }
    if (!constant) owned_.push_back(shard);
  }
  shards_ = make_shards(s, memory_[kMoments], trained_);
}

Param Replicated::owner(Param p) const {
  Param tied = specs_[static_cast<size_t>(p)].tied_to;
  return tied == kNoParam ? p : tied;
}

View Replicated::weight(Param p, Form form) {
  const Shard& shard = by_param_[static_cast<size_t>(owner(p))];
  switch (form) {
    case Form::master:
      return shard.master;
    case Form::compute:
      return shard.compute.present() ? shard.compute : shard.master;
    case Form::fp8:
    case Form::transposed:
      break;
  }
  throw Bug("this store keeps no weight in form {}", static_cast<int>(form));
}

Tensor Replicated::grad(Param p, Accum& accum) {
  auto i = static_cast<size_t>(owner(p));
  accum = used_[i] ? Accum::add : Accum::overwrite;
  used_[i] = true;
  return by_param_[i].grad;
}

void Replicated::begin_step() { used_.assign(used_.size(), false); }

void Replicated::finish(Stream& s) {
  // A weight that nothing used in this step has no gradient: what its buffer holds is an older step's.
  for (const Shard& shard : trained_)
    if (!used_[static_cast<size_t>(shard.param)]) s.fill_zero(shard.grad);
}

void Replicated::refresh(Stream& s) {
  for (const Shard& shard : owned_)
    if (shard.compute.present()) cast(s, shard.compute, shard.master);
}

}  // namespace chiron
