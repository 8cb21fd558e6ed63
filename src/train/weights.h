#pragma once

#include <cstdint>
#include <vector>

#include "core/staging.h"
#include "core/state.h"
#include "nn/param_store.h"

namespace chiron {

/// Draws every weight: a value depends on the seed, the name and the element's place in the named tensor alone, so that
/// no layout and no device changes it. Renews the compute copies.
void initialize(Stream& s, ParamStore& params, uint64_t seed);

/// Constants (rotary tables) into their place; initialize() does it too.
void load_constants(Stream& s, ParamStore& params);

/// Whether no weight is NaN or infinite.
bool weights_are_finite(const Staging& staging, ParamStore& params);

/// Of what several ranks hold alike each loads it, and one saves it.
enum class Which : uint8_t {
  held,  ///< all that this rank holds: what a load fills
  mine,  ///< over all ranks each element once: what a checkpoint or an export writes
};

/// The weights as parts of tensors under Hugging Face's names.
std::vector<StatePart> weight_parts(ParamStore& params, Which which = Which::held);
/// Adam's moments, as "exp_avg.<name>" and "exp_avg_sq.<name>".
std::vector<StatePart> moment_parts(ParamStore& params, Which which = Which::held);
/// Gradients, as "<name>": for `check`.
std::vector<StatePart> gradient_parts(ParamStore& params, Which which = Which::held);

}  // namespace chiron
