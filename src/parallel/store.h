#pragma once

#include <memory>
#include <vector>

#include "comm/mesh.h"
#include "nn/param_store.h"
#include "parallel/stages.h"

namespace chiron {

/// What of the training state exists besides the weights.
enum class StateKind : uint8_t {
  weights,   ///< inference: weights only
  training,  ///< and gradients and Adam's moments
};

/// How weights, gradients and moments are spread over memory and ranks. Masters, gradients and moments are f32; a
/// narrower compute dtype adds a copy of each weight, rewritten by the optimizer. Padding stays zero.
///
/// With ZeRO (Rajbhandari et al., "ZeRO", 2020) n ranks of Axis::shard share out state: rank i has rows
/// [i * ceil(rows / n), (i + 1) * ceil(rows / n)) of each parameter, as far as there are so many.
///
/// Of weights, gradients (G bytes), masters and moments each rank has the whole but for these, of which it has a share:
///   zero 1: masters and moments. Moved per step and rank: 2 (n - 1) / n G, as without ZeRO, where it is an all-reduce
///   zero 2: gradients too, of which two units are whole at a time. They are reduced after each micro-batch
///   zero 3: weights too, of which two units are whole at a time. They are gathered for each pass of a unit
///
/// The first and the last unit, and weights that several units use, have buffers of their own in place of the ring of
/// two. Ranks of the other data axes hold the same, and sum their shares.
struct StoreSetup {
  DType compute = DType::f32;
  StateKind kind = StateKind::training;
  int zero = 0;
  Mesh* mesh = nullptr;          ///< outlives the store; absent: one rank, alone
  std::vector<UnitRange> units;  ///< that this pipeline stage holds; empty: all
  /// Weight gradients of several units may come before any is reduced (weight gradients as actions of their own):
  /// stages 2 and 3 then keep whole gradients, as 1 does.
  bool split_weight_gradients = false;
};

/// `specs` outlives the store. On a dry stream no memory is taken: addresses are made up. With a mesh it is collective.
/// On several pipeline stages ZeRO-3 gathers once a step: it is ZeRO-2 there.
std::unique_ptr<ParamStore> make_store(Stream& s, std::span<const ParamSpec> specs, const StoreSetup& setup);

}  // namespace chiron
