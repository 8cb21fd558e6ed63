#pragma once

#include <cstdint>
#include <span>

namespace chiron {

/// What split patterns tell apart: \p{L}, \p{N}, \s (White_Space) and the rest.
enum class CharClass : uint8_t { other, letter, number, space };

struct CharRange {
  uint32_t first, last;
  CharClass type;
};

/// Every code point from U+0080 on whose class is not `other`, as ascending ranges.
std::span<const CharRange> char_ranges();

/// The class of any code point.
CharClass char_class(uint32_t code);

}  // namespace chiron
