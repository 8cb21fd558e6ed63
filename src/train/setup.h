#pragma once

#include "parallel/store.h"
#include "train/options.h"
#include "train/step.h"

namespace chiron {

/// From options to what the parts of a run are built from.

/// The device that was asked for; `automatic` takes a GPU if there is a real one that this build has code for, and else
/// the log says why not. DeviceError if a GPU was asked for and there is none.
Device choose_device(DeviceChoice choice, Log& log);
/// Options whose model is known: that of a folder, where model.from names one.
Options with_model(Options options, Log& log);
DType compute_dtype(const Options& options);
/// The loss scale that a run starts with, and after how many applied steps it grows (0: it never changes).
struct LossScaling {
  float first;
  int32_t interval;
};
LossScaling loss_scaling(const Options& options);
/// The model, given the vocabulary of the data (0: there is none, the options must name it). ConfigError if the model's
/// vocabulary is too small for the data's, or nothing names one.
ModelSetup model_setup(const Options& options, int64_t data_vocab, const Mesh& mesh = Mesh::single());
/// The store of a rank's weights in training.
StoreSetup store_setup(const Options& options, const Model& model, Mesh& mesh);
TrainStep::Setup step_setup(const Options& options, const Model& model);

}  // namespace chiron
