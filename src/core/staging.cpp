#include "core/staging.h"

#include <utility>

namespace chiron {

uintptr_t Staging::room(int64_t bytes) const {
  if (!memory_ || memory_->bytes() < bytes) {
    memory_.reset();
    memory_ = std::make_unique<HostBuffer>(s_->device(), bytes);
  }
  return reinterpret_cast<uintptr_t>(memory_->data());
}

void Staging::hold(std::span<Rows> all) const {
  if (!s_) return;
  auto bytes = [](const Rows& r) { return r.rows * r.cols * size_of(r.dtype); };
  int64_t sum = 0;
  for (const Rows& r : all) sum += bytes(r);
  uintptr_t at = room(sum);
  for (Rows& r : all) {
    CHECK(r.contiguous(), "rows with gaps on a device");
    s_->download(reinterpret_cast<void*>(at), View{r.at, r.dtype, {r.rows, r.cols}});
    r.at = std::exchange(at, at + static_cast<uintptr_t>(bytes(r)));
  }
}

}  // namespace chiron
