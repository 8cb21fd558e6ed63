#pragma once

/// The launch function, from a vendor's. Included by the vendor headers.

#include <utility>

#include "base/error.h"

namespace chiron::gpu {

/// DeviceError: what the vendor says of `doing`. Remembers whether the device is lost.
[[noreturn]] void throw_failure(int code, const char* doing);
/// What fail_launch() asked for; 0 otherwise.
void count_launch(const char* kernel);

template <class... P, class... A>
void launch(StreamHandle stream, const Launch& how, void (*kernel)(P...), A&&... arguments) {
  CHECK(how.blocks >= 1 && how.blocks < int64_t{1} << 31 && how.threads >= 64 && how.threads <= kMaxThreads &&
            how.threads % 64 == 0 && how.blocks_y >= 1 && how.blocks_y < 65536 && how.blocks_z >= 1 &&
            how.blocks_z < 65536,
        "{}: {} x {} x {} blocks of {} threads", how.kernel, how.blocks, how.blocks_y, how.blocks_z, how.threads);
  count_launch(how.kernel);
  if (int code = vendor::launch<P...>(stream, how, kernel, static_cast<P>(std::forward<A>(arguments))...))
    throw_failure(code, how.kernel);
}

}  // namespace chiron::gpu
