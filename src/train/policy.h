#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"
#include "train/activations.h"

namespace chiron {

/// Which slots of each unit are kept between forward and backward: bit i = slot i.
using Policy = std::vector<uint32_t>;

/// The policy that an option names. ConfigError if it names a slot that the model does not have. The head's own slot is
/// always kept: it is the gradient that forward computed.
Policy make_policy(const Activations& activations, const Model& model);

}  // namespace chiron
