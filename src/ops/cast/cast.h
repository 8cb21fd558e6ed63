#pragma once

#include "core/stream.h"

namespace chiron {

/// to = from, rounded to nearest even; any two float kinds.
void cast(Stream& s, Tensor to, View from);

}  // namespace chiron
