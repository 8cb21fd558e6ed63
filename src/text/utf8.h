#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chiron {

struct CodePoint {
  static constexpr uint32_t kInvalid = 0xFFFFFFFF;
  uint32_t code = kInvalid;
  size_t bytes = 1;  ///< an invalid byte stands alone
};

/// The code point that begins at text[at] (at < size). Overlong forms, surrogates, values above U+10FFFF and sequences
/// cut short are invalid (Unicode Standard 15.0, table 3-7).
CodePoint utf8_at(std::string_view text, size_t at);

/// The code point that ends just before text[end] (1 <= end <= size).
CodePoint utf8_before(std::string_view text, size_t end);

/// Length of the longest prefix that does not end within a code point which more bytes could complete: what may be
/// shown of a text that arrives token by token.
size_t complete_utf8(std::string_view text);

}  // namespace chiron
