#pragma once

#include <functional>
#include <optional>

#include "data/loader.h"
#include "train/device_batch.h"
#include "train/saved_model.h"
#include "train/scalars.h"
#include "train/step.h"

namespace chiron {

/// Loss over a validation set.
struct Evaluation {
  double loss_sum = 0;  ///< nats, over all labels that count
  int64_t tokens = 0;   ///< such labels

  double loss() const { return tokens ? loss_sum / static_cast<double>(tokens) : 0; }
  double perplexity() const;
  /// Per byte of raw text; 0 where the source was no text. Tokens without a label (the first) count with the mean loss.
  double bits_per_byte(const TokenSource& source) const;
};

/// Evaluates the loader's first `steps` steps (0: all that there are). The scalars keep what they held; the loader's
/// batches fit into `batches`. `stop`, if given, is asked between batches: true ends the evaluation early, and nothing
/// is returned. On several ranks all call it, `stop` says the same on all, and all get the sum over their loaders.
std::optional<Evaluation> evaluate(Stream& s, TrainStep& step, Scalars& scalars, DeviceBatches& batches,
                                   const Loader& loader, int64_t steps, Mesh& mesh,
                                   const std::function<bool()>& stop = {});

/// Evaluates a saved model on all that the loader has.
Evaluation evaluate_model(Stream& s, const SavedModel& m, const Loader& loader);

}  // namespace chiron
