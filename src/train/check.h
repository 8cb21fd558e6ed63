#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "core/stream.h"

namespace chiron {

/// One compared quantity. The error of a tensor is max|a-b| / max|b|; of "after.*" it is ||a-b|| / ||b|| over the
/// elements whose reference gradient is at least 1e-4 of that tensor's largest, since Adam turns the rounding noise of
/// a gradient that is zero in exact arithmetic into full steps.
struct Comparison {
  std::string name;
  double error = 0, allowed = 0;
  bool passed() const { return error <= allowed; }  // false for NaN
};

inline constexpr double kCheckTolerance = 1e-4, kCheckAfterTolerance = 5e-4;

/// Runs the model folder on the batch of a reference dump (tests/golden/make_golden.py writes them) in float32: logits,
/// loss, every gradient, and three steps of AdamW (lr 1e-2, betas 0.9 0.95, eps 1e-8, decay 0.1 on matrices, clipping
/// at 1) with their losses, norms and final weights. `tolerance` 0: the defaults above. DataError if the dump lacks a
/// quantity, has one of another shape, or one that the model knows nothing of.
std::vector<Comparison> check_model(Stream& s, const std::string& folder, const std::string& dump, double tolerance,
                                    Log& log);

}  // namespace chiron
