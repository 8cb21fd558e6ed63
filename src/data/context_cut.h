#pragma once

#include "data/loader.h"

namespace chiron {

/// Throws ConfigError, which says what would do, if ranks cannot share out sequences or rows. No data is needed.
void validate_cuts(const LoaderOptions& options);

/// part: what a context rank has of a batch, but for the orders.
void cut_sequences(const HostBatch& whole, int64_t context_ranks, int64_t context_rank, HostBatch& part);

}  // namespace chiron
