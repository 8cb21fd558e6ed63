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

/// Whether it is made up: kernels run slowly then, so tests do with less.
inline bool gpu_is_emulated() {
  if constexpr (gpu::kBuilt) return gpu::traits(kGpu.index).emulated;
  return true;
}

/// Fails the n-th launch from now as long as it lives; see gpu::fail_launch.
struct FailedLaunch {
  FailedLaunch(int64_t n, const char* what, bool lost) {
    if constexpr (gpu::kBuilt) gpu::fail_launch(n, what, lost);
  }
  ~FailedLaunch() {
    if constexpr (gpu::kBuilt) gpu::fail_launch(0, "", false);
  }
  FailedLaunch(const FailedLaunch&) = delete;
  FailedLaunch& operator=(const FailedLaunch&) = delete;
};

}  // namespace chiron
