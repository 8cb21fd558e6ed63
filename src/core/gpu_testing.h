#pragma once

#include <string>

#include "core/stream.h"

namespace chiron {

/// The GPU that tests run on.
inline constexpr Device kGpu{DeviceKind::gpu, 0};

/// Why tests of the GPU cannot run here; empty if they can. Suites named Gpu* skip themselves:
///   if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
inline std::string why_no_gpu() {
  if constexpr (!gpu::kBuilt)
    return "this build has no GPU";
  else
    return gpu::num_devices() > 0 ? "" : "no GPU: " + gpu::why_no_device();
}

}  // namespace chiron
