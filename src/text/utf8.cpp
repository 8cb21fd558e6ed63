#include "text/utf8.h"

namespace chiron {

namespace {

struct Lead {
  size_t bytes;                     // 0: no lead byte
  uint8_t low = 0x80, high = 0xBF;  // allowed second byte
};

Lead lead_of(uint8_t b) {
  if (b < 0x80) return {1};
  if (b >= 0xC2 && b <= 0xDF) return {2};
  if (b == 0xE0) return {3, 0xA0};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3};
  if (b == 0xF0) return {4, 0x90};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  if (b >= 0xF1 && b <= 0xF3) return {4};
  return {0};
}

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

/// How many bytes from `at` on agree with the sequence that its first byte announces.
size_t agreeing(std::string_view text, size_t at, const Lead& lead) {
  size_t n = 1;
  while (n < lead.bytes && at + n < text.size()) {
    uint8_t b = byte_at(text, at + n);
    if (b < (n == 1 ? lead.low : 0x80) || b > (n == 1 ? lead.high : 0xBF)) break;
    ++n;
  }
  return n;
}

}  // namespace

CodePoint utf8_at(std::string_view text, size_t at) {
  uint8_t first = byte_at(text, at);
  if (first < 0x80) return {first, 1};
  Lead lead = lead_of(first);
  if (lead.bytes == 0 || agreeing(text, at, lead) < lead.bytes) return {};
  uint32_t code = first & (0x7Fu >> lead.bytes);
  for (size_t i = 1; i < lead.bytes; ++i) code = code << 6 | (byte_at(text, at + i) & 0x3Fu);
  return {code, lead.bytes};
}

CodePoint utf8_before(std::string_view text, size_t end) {
  for (size_t n = 1; n <= 4 && n <= end; ++n) {
    if ((byte_at(text, end - n) & 0xC0) == 0x80) continue;
    CodePoint c = utf8_at(text.substr(0, end), end - n);
    return c.bytes == n ? c : CodePoint{};
  }
  return {};
}

size_t complete_utf8(std::string_view text) {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    size_t at = text.size() - n;
    if ((byte_at(text, at) & 0xC0) == 0x80) continue;
    Lead lead = lead_of(byte_at(text, at));
    return lead.bytes > n && agreeing(text, at, lead) == n ? at : text.size();
  }
  return text.size();
}

}  // namespace chiron
