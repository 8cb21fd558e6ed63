#include "train/parallel_options.h"

namespace chiron {

void ParallelOptions::describe(Schema& s) {
  constexpr int64_t kMaxRanks = 1 << 20;
  s.option("auto", automatic,
           "Chooses dp, zero, tp, sequence and pp for the ranks that there are: the layout that fits into memory and "
           "communicates least. `chiron plan` and the start of a run print it.")
      .changeable();
  s.option("dp", dp, "Ranks that each take their share of the step's sequences. 0: all that the others leave.")
      .at_least(0)
      .at_most(kMaxRanks)
      .changeable();
  s.option("zero", zero,
           "What data ranks share out instead of each holding it: 1 the optimizer's state, 2 gradients too, 3 weights "
           "too (ZeRO).")
      .at_least(0)
      .at_most(3)
      .changeable();
  s.option("zero_group", zero_group,
           "Of so many data ranks, neighbours, each group shares out among itself and all groups hold the same: as "
           "many as a node has keeps gathering inside nodes. 0: all data ranks are one group.")
      .at_least(0)
      .at_most(kMaxRanks)
      .changeable();
  s.option("tp", tp, "Ranks that share each matrix and the heads of attention (tensor parallel).")
      .at_least(1)
      .at_most(kMaxRanks)
      .changeable();
  s.option("sequence", sequence,
           "With tp: outside attention and MLP each of them has its share of the tokens (sequence parallel). Less "
           "memory for the same communication.")
      .changeable();
  s.option("cp", cp, "Ranks that share each sequence (context parallel).").at_least(1).at_most(kMaxRanks).changeable();
  s.option("pp", pp, "Stages that share the layers (pipeline parallel).").at_least(1).at_most(kMaxRanks).changeable();
  s.option("schedule", schedule,
           "In which order the stages take the micro-batches: all forward then all back, back as soon as possible, the "
           "same over several chunks of layers per stage, or with weight gradients where a stage would wait. All give "
           "the same sums.")
      .changeable();
  s.option("chunks", chunks, "interleaved: parts of the model on each stage.").at_least(1).at_most(1024).changeable();
  s.option("timeout", timeout, "A rank that is silent for so long is taken for lost, and all end.")
      .at_least(1)
      .at_most(86400)
      .unit("seconds")
      .changeable();
}

}  // namespace chiron
