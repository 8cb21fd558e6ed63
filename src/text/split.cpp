#include "text/split.h"

#include <algorithm>
#include <array>

#include "text/unicode_ranges.h"
#include "text/utf8.h"

namespace chiron {

namespace {

constexpr CharClass ascii_class(uint32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::letter;
  if (c >= '0' && c <= '9') return CharClass::number;
  if (c == ' ' || (c >= 9 && c <= 13)) return CharClass::space;
  return CharClass::other;
}

constexpr auto kAscii = [] {
  std::array<CharClass, 128> table{};
  for (uint32_t c = 0; c < 128; ++c) table[c] = ascii_class(c);
  return table;
}();

struct Char {
  CharClass type;
  size_t bytes;
};

Char char_at(std::string_view text, size_t at) {
  auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {kAscii[first], 1};
  CodePoint c = utf8_at(text, at);
  return {char_class(c.code), c.bytes};
}

size_t run_end(std::string_view text, size_t at, CharClass type) {
  while (at < text.size()) {
    Char c = char_at(text, at);
    if (c.type != type) break;
    at += c.bytes;
  }
  return at;
}

/// Length of the contraction that follows an apostrophe, 0 if none does.
size_t contraction(std::string_view rest) {
  if (rest.starts_with("re") || rest.starts_with("ve") || rest.starts_with("ll")) return 2;
  return !rest.empty() && std::string_view("stmd").find(rest[0]) != std::string_view::npos ? 1 : 0;
}

}  // namespace

CharClass char_class(uint32_t code) {
  if (code < 128) return kAscii[code];
  auto ranges = char_ranges();
  auto it = std::partition_point(ranges.begin(), ranges.end(), [=](const CharRange& r) { return r.last < code; });
  return it != ranges.end() && it->first <= code ? it->type : CharClass::other;
}

size_t gpt2_piece_end(std::string_view text, size_t at) {
  if (text[at] == '\'')
    if (size_t n = contraction(text.substr(at + 1))) return at + 1 + n;
  size_t body = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  Char c = char_at(text, body);
  if (c.type != CharClass::space) return run_end(text, body + c.bytes, c.type);
  size_t end = run_end(text, at, CharClass::space);
  if (end == text.size()) return end;
  // \s+(?!\S) leaves the last space to the word that follows; a single space stands alone.
  size_t last = end - utf8_before(text, end).bytes;
  return last > at ? last : end;
}

}  // namespace chiron
