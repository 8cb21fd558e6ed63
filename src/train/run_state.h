#pragma once

#include <optional>
#include <string>

#include "base/log.h"
#include "comm/communicator.h"
#include "models/model.h"
#include "nn/param_store.h"
#include "train/options.h"
#include "train/saver.h"
#include "train/scalars.h"
#include "train/sources.h"

/// Where a run begins and goes on: what its checkpoints hold beside tensors, and how a state gets into memory.
/// Functions that take a world are collective over it: all ranks do the same, or fail for the same reason.
namespace chiron {

/// What counts the steps of a run; part of its state.
struct Counters {
  int64_t step = 0;  ///< steps done
  int64_t skipped = 0, skipped_in_a_row = 0;
  int64_t overflowed = 0;
};

/// trainer_state.json. `ranks` tells a reader how many saved it; nothing hangs on it.
nlohmann::json state_json(const Counters& counters, const StepScalars& scalars, const Options& options,
                          const Sources& sources, int ranks);

/// The newest whole checkpoint, the same on every rank; nothing if the run has none. Says why others were passed over.
/// DataError if there are some and none is whole.
std::optional<CheckpointInfo> find_newest(const std::string& dir, Communicator& world, Stream& s, Log& log);

/// Fills weights, moments and the rest from a checkpoint of any layout. DataError if it is damaged, does not fit the
/// model, or is of other data than `sources`.
void load_state(const CheckpointInfo& from, Communicator& world, Stream& s, ParamStore& params, const Sources& sources,
                Counters& counters, StepScalars& scalars);

/// The first weights: drawn, or those of model.from.
void first_weights(Stream& s, const Options& options, const Model& model, ParamStore& params, const Sources& sources,
                   Log& log);

/// The weights and moments that this rank saves, where they lie: over all ranks each element once.
SaveContents state_tensors(ParamStore& params);

}  // namespace chiron
