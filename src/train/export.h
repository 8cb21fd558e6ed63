#pragma once

#include <string>

#include "base/log.h"
#include "train/saved_model.h"

namespace chiron {

/// Writes a model as a Hugging Face folder `to` (which must not exist, or be empty), float32. ConfigError if no model
/// of the family's architecture there could do what this one does.
void export_model(const SavedModel& m, const std::string& to);

}  // namespace chiron
