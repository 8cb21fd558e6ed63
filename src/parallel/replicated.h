#pragma once

#include <array>
#include <vector>

#include "core/stack.h"
#include "nn/param_store.h"

namespace chiron {

/// What of the training state exists besides the weights.
enum class StateKind : uint8_t {
  weights,   ///< inference: weights only
  training,  ///< and gradients and Adam's moments
};

/// Every rank holds everything (data parallelism without ZeRO; one rank). Masters are f32; a narrower compute dtype
/// adds a copy of each weight, rewritten by the optimizer. Padding stays zero.
class Replicated final : public ParamStore {
 public:
  /// `specs` outlives the store. On a dry stream no memory is taken: addresses are made up.
  Replicated(Stream& s, std::span<const ParamSpec> specs, DType compute, StateKind kind);

  std::span<const ParamSpec> specs() const override { return specs_; }
  void fetch(Stream&, Unit) override {}
  void use(Stream&, Unit) override {}
  void done(Stream&, Unit) override {}
  View weight(Param p, Form form) override;
  Tensor grad(Param p, Accum& accum) override;
  void begin_step() override;
  void reduce(Stream&, Unit, bool) override {}
  void finish(Stream& s) override;
  void publish(Stream&) override {}
  const Shards& shards() override { return shards_; }
  const Shards& counted() override { return shards_; }
  std::span<const Shard> owned() override { return owned_; }
  void refresh(Stream& s) override;

  /// Bytes by class, for the plan.
  int64_t weight_bytes() const { return memory_[kWeights].peak() + memory_[kCompute].peak(); }
  int64_t gradient_bytes() const { return memory_[kGradients].peak(); }
  int64_t optimizer_bytes() const { return memory_[kMoments].peak(); }

 private:
  enum Class { kWeights, kCompute, kGradients, kMoments, kNumClasses };
  using Memory = std::array<Stack, kNumClasses>;

  void lay_out(Stream& s, DType compute, StateKind kind);
  Param owner(Param p) const;

  std::span<const ParamSpec> specs_;
  Memory memory_;
  std::vector<Shard> by_param_;  ///< absent for tied parameters
  std::vector<Shard> owned_, trained_;
  Shards shards_;           ///< of trained_
  std::vector<bool> used_;  ///< this step
};

}  // namespace chiron
