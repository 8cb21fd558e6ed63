#pragma once

#include <array>
#include <vector>

#include "core/stack.h"
#include "parallel/store.h"

namespace chiron {

/// A parameter as one rank holds it: whole, where layers see it, and this rank's share of the rows, which is what the
/// optimizer sees. Both are padded to ceil(rows / n) rows for each of n ranks; with one rank they are the same memory.
struct HeldParam {
  Param param = kNoParam;   ///< never a tied one: its owner
  std::vector<Unit> users;  ///< on this rank, ascending; none: a constant
  /// Its whole forms lie in memory that takes turns: they share it with those of every second unit.
  bool ring = false;
  Tensor weight;        ///< in the form to compute with
  Tensor weight_share;  ///< this rank's rows of that: within `weight` where it is there to stay
  Tensor grad;          ///< absent if not trained
  Tensor grad_share;    ///< within `grad` where that is there to stay
  Shard shard;          ///< this rank's rows without padding, perhaps none; moments and gradient if trained

  bool constant() const { return users.empty(); }
  /// The unit whose backward pass completes the gradient: passes go down.
  Unit last_user() const { return users.front(); }
};

/// The parameters of one rank, in parameter order, and their memory.
class HeldParams {
 public:
  struct Layout {
    int ranks = 1, rank = 0;      ///< that share out each parameter
    bool pass_weights = false;    ///< whole weights are there only while a unit is in use
    bool pass_gradients = false;  ///< whole gradients are there only until a unit is reduced
  };

  HeldParams(Stream& s, std::span<const ParamSpec> specs, const StoreSetup& setup, Layout layout);

  const Layout& layout() const { return layout_; }
  const std::vector<HeldParam>& all() const { return params_; }
  /// Places in all() of the parameters that a unit uses here, and of those whose last user it is.
  const std::vector<int>& used_by(Unit u) const { return used_by_[static_cast<size_t>(u)]; }
  const std::vector<int>& completed_by(Unit u) const { return completed_by_[static_cast<size_t>(u)]; }
  /// Where p, or the owner it is tied to, stands among all(); -1: this rank does not hold it.
  int find(Param p) const { return index_[static_cast<size_t>(p)]; }
  const HeldParam& at(Param p) const;
  /// Stretches of memory that hold the gradient shares of the parameters with that last user, and nothing else but
  /// zeros between them.
  std::vector<Tensor> gradient_runs(Unit u) const;
  bool ring_unit(Unit u) const { return u != 0 && u != last_unit_; }

  StoreBytes bytes() const;

 private:
  enum Class { kWeights, kCompute, kGradients, kMoments, kBuffers, kNumClasses };

  /// Shapes of a parameter in memory, and which rows this rank has.
  struct Cut {
    Shape whole, share;  ///< with padding
    int64_t from, rows;  ///< without
  };

  void choose(const std::vector<UnitRange>& units);
  Cut cut_of(const HeldParam& h) const;
  void lay_out(DType compute, StateKind kind);
  void lay_out_weight(HeldParam& h, DType compute, bool trained);
  void lay_out_gradient(HeldParam& h, DType wide);
  template <class F>
  void lay_out_passing(F&& place);

  std::span<const ParamSpec> specs_;
  Layout layout_;
  Unit last_unit_ = 0;
  std::vector<HeldParam> params_;
  std::vector<int> index_;
  std::vector<std::vector<int>> used_by_, completed_by_;
  std::array<Stack, kNumClasses> memory_;
};

}  // namespace chiron
