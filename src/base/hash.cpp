#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"

namespace chiron {

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(const void* data, size_t bytes) { XXH3_128bits_update(&state_->xxh, data, bytes); }

Hash128 Hasher::digest() const {
  XXH128_hash_t h = XXH3_128bits_digest(&state_->xxh);
  return {h.high64, h.low64};
}

Hash128 hash128(const void* data, size_t bytes) {
  XXH128_hash_t h = XXH3_128bits(data, bytes);
  return {h.high64, h.low64};
}

}  // namespace chiron
