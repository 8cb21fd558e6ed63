#pragma once

#include "core/batch.h"
#include "core/stack.h"

namespace chiron {

struct HostBatch;

/// The step's batches as the device sees them. On the CPU they are views of the host's arrays.
Batch view_of(const HostBatch& batch);

/// A batch of made-up addresses: for plans.
Batch dry_batch(Stack& stack, int64_t sequences, int64_t length, bool document_mask);

}  // namespace chiron
