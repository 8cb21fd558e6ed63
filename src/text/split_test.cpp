#include "text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "text/unicode_ranges.h"
#include "text/utf8.h"

namespace chiron {
namespace {

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = gpt2_piece_end(text, at);
    EXPECT_GT(end, at);
    EXPECT_LE(end, text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Split, ByHand) {
  EXPECT_EQ(pieces("Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(pieces("it's we'll I'd THEY'RE"), (Pieces{"it", "'s", " we", "'ll", " I", "'d", " THEY", "'", "RE"}));
  EXPECT_EQ(pieces("  a"), (Pieces{" ", " a"}));
  EXPECT_EQ(pieces("a  \n"), (Pieces{"a", "  \n"}));
  EXPECT_EQ(pieces("a\nb"), (Pieces{"a", "\n", "b"}));
  EXPECT_EQ(pieces("a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(pieces("x1 23!? ..."), (Pieces{"x", "1", " 23", "!?", " ..."}));
  EXPECT_EQ(pieces(" "), (Pieces{" "}));
  EXPECT_EQ(pieces("'"), (Pieces{"'"}));
  EXPECT_EQ(pieces(" 's"), (Pieces{" '", "s"}));
  EXPECT_EQ(pieces("\xC2\xA0\xC2\xA0x"), (Pieces{"\xC2\xA0", "\xC2\xA0", "x"}));
  EXPECT_EQ(pieces("a\xFF\xC3z"), (Pieces{"a", "\xFF\xC3", "z"})) << "invalid bytes belong to no class";
}

/// The pattern itself, run by PCRE2.
class Oracle {
 public:
  Oracle() {
    const char* pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    int error = 0;
    PCRE2_SIZE where = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                              &error, &where, nullptr));
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }
  Pieces pieces(const std::string& text) const {
    Pieces out;
    auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    uint32_t checked = 0;
    for (size_t at = 0; at < text.size();) {
      if (pcre2_match(code_.get(), subject, text.size(), at, checked, match_.get(), nullptr) <= 0) break;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_.get());
      EXPECT_EQ(range[0], at);
      out.push_back(text.substr(range[0], range[1] - range[0]));
      at = range[1];
      checked = PCRE2_NO_UTF_CHECK;
    }
    return out;
  }

 private:
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

void append(std::string& s, uint32_t c) {
  auto put = [&](uint32_t b) { s += static_cast<char>(b); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
}

/// PCRE2 10.42 knows Unicode 14 and counts U+180E as a space; what Unicode 15 added is left out too.
bool comparable(uint32_t c) {
  auto in = [=](uint32_t first, uint32_t last) { return c >= first && c <= last; };
  return c != 0x180E && !in(0xD800, 0xDFFF) && !in(0x1123F, 0x11241) && !in(0x11F00, 0x11FFF) &&
         !in(0x1D2C0, 0x1D2DF) && !in(0x1DF25, 0x1DF2F) && !in(0x1E030, 0x1E06F) && !in(0x1E4D0, 0x1E4FF) &&
         !in(0x13439, 0x13455) && !in(0x1342F, 0x1342F) && !in(0x1B132, 0x1B155) && !in(0x2B739, 0x2B739) &&
         !in(0x31350, 0x323AF);
}

TEST(Split, AgreesWithThePatternOnEveryCodePoint) {
  Oracle oracle;
  for (uint32_t c = 1; c < 0x110000; c += 0x400) {
    std::string text;
    for (uint32_t i = c; i < c + 0x400 && i < 0x110000; ++i)
      if (comparable(i)) {
        append(text, i);
        text += "a1";  // keeps characters apart: each shows its own class
      }
    ASSERT_EQ(pieces(text), oracle.pieces(text)) << "from U+" << std::hex << c;
  }
}

TEST(Split, AgreesWithThePatternOnRandomText) {
  Oracle oracle;
  std::mt19937 rng(17);
  const std::vector<uint32_t> common = {' ',    ' ',  '\n', '\t', '\'',   's',     't',  'r',  'e',
                                        'v',    'l',  'm',  'd',  'A',    '1',     '.',  0xA0, 0x2003,
                                        0x3000, 0x85, 0xE9, 0xB2, 0x4E2D, 0x1F600, 0x301};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = rng() % 24; n > 0; --n) {
      uint32_t c = rng() % 8 ? common[rng() % common.size()] : 1 + rng() % 0x10FFFE;
      append(text, comparable(c) ? c : 'x');
    }
    ASSERT_EQ(pieces(text), oracle.pieces(text)) << text;
  }
}

TEST(Split, CoversAnyBytes) {
  std::mt19937 rng(19);
  for (int i = 0; i < 2000; ++i) {
    std::string text(rng() % 40, '\0'), joined;
    for (char& c : text) c = static_cast<char>(rng());
    for (const std::string& p : pieces(text)) joined += p;
    ASSERT_EQ(joined, text);
  }
}

TEST(Utf8, ForwardsAndBackwardsAgree) {
  std::mt19937 rng(23);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int n = 0; n < 6; ++n) {
      if (rng() % 2)
        append(text, 0x80 + rng() % 0xD000);
      else
        text += static_cast<char>(rng());
    }
    for (size_t at = 0; at < text.size();) {
      CodePoint c = utf8_at(text, at);
      at += c.bytes;
      ASSERT_EQ(utf8_before(text, at).code, c.code);
      ASSERT_EQ(utf8_before(text, at).bytes, c.bytes);
    }
  }
}

TEST(Utf8, RefusesWhatIsNotACodePoint) {
  for (const char* bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80", "\x80"})
    EXPECT_EQ(utf8_at(bad, 0).code, CodePoint::kInvalid) << bad;
  EXPECT_EQ(utf8_at("\xF4\x8F\xBF\xBF", 0).code, 0x10FFFFu);
}

}  // namespace
}  // namespace chiron
