#pragma once

#include "ops/adamw/adamw.h"

/// The GPU's side of the op: arguments as in adamw.h, checked already, on a stream that runs.
namespace chiron::gpu {

void adamw(Stream& s, const StepScalars* scalars, const Shards& shards, const AdamWOptions& options);

}  // namespace chiron::gpu
