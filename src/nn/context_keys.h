#pragma once

#include "nn/ctx.h"

namespace chiron {

/// Context parallelism: each rank has two chunks of every sequence (core/batch.h), and attention sees whole sequences.

/// Every token's rows of `own` (this rank's keys and values), sequence by sequence, on the scratch stack. Of a group of
/// one: own itself.
Rows gather_context(Ctx& c, Rows own, const Batch& batch);
/// own <- the sum over context ranks of `all`, which is laid out as gather_context() does.
void return_context(Ctx& c, Rows own, Tensor all, const Batch& batch);

}  // namespace chiron
