#pragma once

#include "core/stream.h"
#include "gpu/gpu.h"

namespace chiron {

/// Starts a kernel on a stream; for .cu files. DeviceError names the op with its inputs, and the kernel.
template <class... P, class... A>
void launch(Stream& s, const gpu::Launch& how, void (*kernel)(P...), A&&... arguments) {
  try {
    gpu::launch(s.handle(), how, kernel, std::forward<A>(arguments)...);
  } catch (const DeviceError& e) {
    throw DeviceError("{}: {}", s.op_text(), e.what());
  }
}

}  // namespace chiron
