#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace chiron {

/// An XXH3-128 value (xxHash specification, github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
  /// 32 lower-case hexadecimal digits, high half first, as `xxhsum -H2` prints them.
  std::string hex() const;
};

/// XXH3-128 of a stream of bytes that arrives in any number of pieces. Not thread-safe.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void update(const void* data, size_t bytes);
  /// The value of all bytes so far; more may follow.
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-128 of one run of bytes.
Hash128 hash128(const void* data, size_t bytes);
inline Hash128 hash128(std::string_view text) { return hash128(text.data(), text.size()); }

}  // namespace chiron
