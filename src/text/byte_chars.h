#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace chiron {

/// Byte-level BPE writes each byte as one printable character: bytes 33-126, 161-172 and 174-255 as themselves, the
/// other 68, in order, as U+0100 and up (GPT-2's encoder.py, bytes_to_unicode).
constexpr bool byte_is_printable(int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

inline constexpr auto kByteToChar = [] {
  std::array<uint32_t, 256> table{};
  uint32_t next = 0x100;
  for (int b = 0; b < 256; ++b)
    table[static_cast<size_t>(b)] = byte_is_printable(b) ? static_cast<uint32_t>(b) : next++;
  return table;
}();

/// Bytes in the order of their characters: the first 256 ids of a byte-level BPE.
inline constexpr auto kBytesByChar = [] {
  std::array<uint8_t, 256> order{};
  size_t n = 0;
  for (int printable = 1; printable >= 0; --printable)
    for (int b = 0; b < 256; ++b)
      if (byte_is_printable(b) == (printable == 1)) order[n++] = static_cast<uint8_t>(b);
  return order;
}();

}  // namespace chiron
