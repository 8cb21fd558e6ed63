#pragma once

#include <span>

#include "core/shard_blocks.h"

namespace chiron {

/// Memory by what it is for.
struct StoreBytes {
  int64_t weights = 0, gradients = 0, optimizer = 0;
  int64_t buffers = 0;  ///< whole weights and gradients of a few units, while they are needed: ZeRO 2 and 3
  int64_t total() const { return weights + gradients + optimizer + buffers; }
};

/// Where weights and gradients live. Layers ask for them by parameter; how they are spread over ranks and memory is
/// behind this interface and nowhere else.
class ParamStore {
 public:
  virtual ~ParamStore() = default;
  virtual std::span<const ParamSpec> specs() const = 0;

  /// A unit's weights are on their way / must be here / are free to go. The executor calls them in this order; it may
  /// fetch the unit that comes next while one is in use. All ranks call them alike.
  virtual void fetch(Stream&, Unit) = 0;
  virtual void use(Stream&, Unit) = 0;
  virtual void done(Stream&, Unit) = 0;

  /// The weight in a form. A tied parameter is its owner's.
  virtual View weight(Param p, Form form) = 0;
  /// Where the gradient of p goes, and whether this use overwrites or adds: the first use since begin_step()
  /// overwrites. Absent if p is not trainable.
  virtual Tensor grad(Param p, Accum& accum) = 0;

  /// A step starts: the next use of each gradient overwrites.
  virtual void begin_step() = 0;
  /// The gradients of a unit are complete for this micro-batch: reduction may start. Every unit of this rank is reduced
  /// once with `last_micro` in a step.
  virtual void reduce(Stream&, Unit, bool last_micro) = 0;
  /// All reductions are done; shards() hold the gradients of the step.
  virtual void finish(Stream&) = 0;
  /// The optimizer has changed the shards: make the new weights known.
  virtual void publish(Stream&) = 0;

  /// What this rank's optimizer updates, in parameter order.
  virtual const Shards& shards() = 0;
  /// Those stretches whose gradients this rank counts in the global norm: over all ranks each element once.
  virtual const Shards& counted() = 0;
  /// The masters this rank owns, trained or not, without constants: what is saved, loaded and initialised. Moments are
  /// present for trained ones.
  virtual std::span<const Shard> owned() = 0;
  /// Whether this rank, of all that own the same rows of p, is the one that saves them (those of Piece::mine).
  virtual bool saves(Param p) const = 0;
  virtual StoreBytes bytes() const = 0;
  /// Masters were written from outside (initialised, loaded): renew every other form.
  virtual void refresh(Stream&) = 0;
};

}  // namespace chiron
