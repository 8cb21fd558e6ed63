#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/stream.h"

namespace chiron {

/// How the cases of an op went.
struct OpVerdict {
  std::string op;
  int runs = 0;                       ///< of a case in one dtype
  std::vector<std::string> failures;  ///< "T7 C33 bf16: y: error 0.1 > 0.004; ..."
};

/// Runs every op case in every dtype of the stream's device against its reference (see check_case). Calls `report` when
/// an op is done. An error of the device is a failure of the case that met it.
void self_test(Stream& s, const std::function<void(const OpVerdict&)>& report);

}  // namespace chiron
