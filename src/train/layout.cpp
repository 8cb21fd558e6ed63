#include "train/layout.h"

#include "data/context_cut.h"

namespace chiron {
MeshSizes mesh_sizes(const Options& o, int world) {
  const ParallelOptions& p = o.parallel;
  const MeshSizes sizes = fit_mesh({.tp = static_cast<int>(p.tp),
                                    .cp = static_cast<int>(p.cp),
                                    .dp = static_cast<int>(p.dp),
                                    .shard = static_cast<int>(p.zero_group),
                                    .pp = static_cast<int>(p.pp)},
                                   world);
  validate_cuts({.sequences = o.training.batch_size,
                 .length = o.training.seq_len,
                 .context_ranks = sizes.cp,
                 .row_ranks = p.sequence ? sizes.tp : 1});
  validate(ScheduleShape{p.schedule, sizes.pp, static_cast<int>(p.chunks),
                         static_cast<int>(o.training.gradient_accumulation)});
  return sizes;
}

Options with_mesh(Options o, const MeshSizes& sizes) {
  o.parallel.dp = sizes.dp;
  return o;
}

LoaderOptions loader_options(const Options& o, const Mesh& mesh) {
  return {.sequences = o.training.batch_size,
          .length = o.training.seq_len,
          .micros = o.training.gradient_accumulation,
          .rank = mesh.index(kBatchAxes),
          .num_ranks = mesh.size(kBatchAxes),
          .context_rank = mesh.index(Axis::cp),
          .context_ranks = mesh.size(Axis::cp),
          .row_ranks = o.parallel.sequence ? mesh.size(Axis::tp) : 1,
          .seed = o.training.seed,
          .shuffle = o.data.shuffle,
          .document_mask = o.data.document_mask};
}

int64_t sequences_per_step(const Options& o) {
  return o.training.batch_size * o.training.gradient_accumulation * std::max<int64_t>(1, o.parallel.dp);
}

}  // namespace chiron
