#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "core/batch.h"
#include "core/random.h"
#include "core/slot.h"
#include "core/stack.h"
#include "nn/param_store.h"

namespace chiron {

class KvCache;

/// What a forward call is for.
enum class Mode : uint8_t {
  train,     ///< dropout acts, slots are kept, the head leaves its gradient
  evaluate,  ///< nothing is kept
};

/// Weight gradients that wait for their own action of the schedule (zero-bubble pipelines). Takes memory until it has
/// held the most jobs that it ever holds, and none from then on.
class WgradQueue {
 public:
  /// `job` is called without arguments, perhaps by a copy of it.
  template <class F>
  void push(const F& job) {
    static_assert(std::is_trivially_copyable_v<F> && sizeof(F) <= kRoom && alignof(F) <= alignof(Job));
    Job& to = jobs_.emplace_back();
    new (to.room) F(job);
    to.run = [](const std::byte* room) { (*std::launder(reinterpret_cast<const F*>(room)))(); };
  }
  /// Runs the jobs in the order in which they came.
  void run() {
    for (const Job& job : jobs_) job.run(job.room);
    jobs_.clear();
  }
  bool empty() const { return jobs_.empty(); }

 private:
  static constexpr size_t kRoom = 160;  // two views, and what Ctx::wgrad adds
  struct Job {
    alignas(std::max_align_t) std::byte room[kRoom];
    void (*run)(const std::byte* room);
  };
  std::vector<Job> jobs_;
};

/// Everything that layers work with, besides their arguments.
struct Ctx {
  Stream& s;
  Stack& saved;  ///< slots kept until backward
  Stack& unit;   ///< slots that live as long as one call of a unit
  Stack& temp;   ///< scoped scratch
  Communicator& tp;
  Communicator& cp;
  bool sequence = false;  ///< sequence parallelism: outside attention and MLP each tensor rank has its share of tokens
  ParamStore& params;
  StepScalars* scalars;  ///< on the device
  DType compute = DType::f32;
  Mode mode = Mode::train;
  Unit at = 0;  ///< the unit that runs
  bool in_forward = true;
  KvCache* cache = nullptr;        ///< generation only
  WgradQueue* deferred = nullptr;  ///< absent: weight gradients are computed at once
  int sm_budget = 0;               ///< 0: all

  /// The slot, filled by `fill(Slot&)` if it is empty. A cache lookup, no more: a kept slot goes to the saved stack,
  /// any other lives until its unit's call ends.
  template <class F>
  Slot& memo(Saved& of, int id, F&& fill) {
    Slot& slot = of[id];
    if (slot.filled()) return slot;
    const SlotSpec& spec = of.specs[static_cast<size_t>(id)];
    const int64_t rows = of.x.rows() * (spec.gathered && sequence ? tp.size() : 1);
    Stack& stack = slot.keep && in_forward ? saved : unit;
    Tensor value = stack.push(compute, {rows, spec.cols});
    if (spec.stat_cols) slot.stat = stack.push(acc_dtype(compute), {rows, spec.stat_cols});
    slot.value = value;
    if (s.trace()) s.trace()->slot_begin(spec.name, slot.keep, !in_forward);
    fill(slot);
    if (s.trace()) s.trace()->slot_end();
    return slot;
  }

  Tensor scratch(Shape shape) { return temp.push(compute, shape); }

  /// A weight gradient: job(stream, dw, accum, temp), at once or when the schedule asks. Nothing if p is not trained.
  /// What the job reads must come from hold(); its captures are few and trivially copyable.
  template <class F>
  void wgrad(Param p, F&& job) {
    if (p == kNoParam || !params.specs()[static_cast<size_t>(p)].trainable) return;
    auto run = [&stream = s, &store = params, &scratch = temp, p, job] {
      Accum accum;
      Tensor dw = store.grad(p, accum);
      job(stream, dw, accum, scratch);
    };
    if (deferred)
      deferred->push(run);
    else
      run();
  }

  /// The gradient of p for an op that computes it beside dx; absent if p is not trained.
  Tensor grad(Param p, Accum& accum) {
    accum = Accum::overwrite;
    if (p == kNoParam || !params.specs()[static_cast<size_t>(p)].trainable) return {};
    return params.grad(p, accum);
  }

  /// v, or a copy on the saved stack where v would be gone or overwritten before a deferred job reads it.
  View hold(View v) {
    if (!deferred || saved.contains(v.at)) return v;
    Tensor copy = saved.push(v.dtype, v.shape);
    s.copy(copy, v);
    return copy;
  }

  View weight(Param p) { return p == kNoParam ? View{} : params.weight(p, Form::compute); }

  RandomKey random(uint32_t op) const { return {scalars, static_cast<uint32_t>(at), op}; }
};

}  // namespace chiron
