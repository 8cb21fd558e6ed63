#pragma once

#include "core/stream.h"

namespace chiron {

/// y = a + b.  One float kind and shape; y may be a or b.
void add(Stream& s, Tensor y, View a, View b);

}  // namespace chiron
