#pragma once

#include "comm/mesh.h"
#include "data/loader.h"
#include "train/options.h"

namespace chiron {

/// The mesh that options ask for, on `world` ranks. ConfigError, with what would do, if there is none or the run cannot
/// be cut so. Nothing is communicated or allocated.
MeshSizes mesh_sizes(const Options& options, int world);

/// Options of a run on such a mesh: what was left open (parallel.dp: 0) is filled in.
Options with_mesh(Options options, const MeshSizes& sizes);

/// Ranks that each take sequences of their own.
inline constexpr Axis kBatchAxes = Axis::dp | Axis::ep;

/// What this rank reads of the data.
LoaderOptions loader_options(const Options& options, const Mesh& mesh);

/// Sequences of a step, over all ranks: what may not change on resume, however it is cut.
int64_t sequences_per_step(const Options& options);

}  // namespace chiron
