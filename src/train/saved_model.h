#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/log.h"
#include "core/stream.h"
#include "models/model.h"
#include "nn/param_store.h"
#include "text/tokenizer.h"

namespace chiron {

/// A model read for use: from a run (its newest whole checkpoint), a checkpoint, or a Hugging Face folder.
struct SavedModel {
  std::string dir;  ///< the folder that holds the weights
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> params;
  std::unique_ptr<Tokenizer> tokenizer;  ///< absent if the folder has none

  /// How the weights are to be held.
  struct Use {
    DType compute = DType::f32;
    bool training = false;  ///< with room for gradients and moments
  };
};

/// DataError if there is no model in `path`, or it is broken. Remarks go to the log.
SavedModel open_model(Stream& s, const std::string& path, SavedModel::Use use, Log& log);

}  // namespace chiron
