#!/usr/bin/env python3
"""Writes src/text/unicode_ranges.cpp from the Unicode database (Debian: unicode-data).

    tools/unicode_ranges.py [/usr/share/unicode] > src/text/unicode_ranges.cpp
"""
import sys

root = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
classes = [None] * 0x110000


def mark(first, last, name):
    for code in range(first, last + 1):
        classes[code] = name


first = None
for line in open(f"{root}/UnicodeData.txt", encoding="utf-8"):
    fields = line.split(";")
    code, name, category = int(fields[0], 16), fields[1], fields[2]
    if name.endswith(", First>"):
        first = code
        continue
    begin = first if name.endswith(", Last>") else code
    if category[0] in "LN":
        mark(begin, code, {"L": "letter", "N": "number"}[category[0]])
for line in open(f"{root}/PropList.txt", encoding="utf-8"):
    fields = line.split("#")[0].split(";")
    if len(fields) == 2 and fields[1].strip() == "White_Space":
        bounds = [int(x, 16) for x in fields[0].strip().split("..")]
        mark(bounds[0], bounds[-1], "space")
version = open(f"{root}/PropList.txt", encoding="utf-8").readline().strip("# \n")[len("PropList-"):-len(".txt")]

print(f"""// Unicode {version}: written by tools/unicode_ranges.py.
#include "text/unicode_ranges.h"

#include <algorithm>
#include <array>

namespace chiron {{

namespace {{

// Of each class: how many code points from U+0080 on do not belong to it, how many then do, and so on in turn.
// clang-format off""")
for name in ("letter", "number", "space"):
    runs, last = [], 0x80
    for code in range(0x80, 0x110000):
        inside = len(runs) % 2 == 1
        if (classes[code] == name) != inside:
            runs.append(code - last)
            last = code
    assert len(runs) % 2 == 0
    print(f"constexpr uint32_t k{name.capitalize()}Runs[] = {{")
    line = "   "
    for item in (f" {run}," for run in runs):
        if len(line) + len(item) > 120:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
print("""// clang-format on

constexpr auto kRanges = [] {
  std::array<CharRange, (std::size(kLetterRuns) + std::size(kNumberRuns) + std::size(kSpaceRuns)) / 2> ranges{};
  auto* to = ranges.data();
  auto add = [&](std::span<const uint32_t> runs, CharClass type) {
    uint32_t at = 0x80;
    for (size_t i = 0; i < runs.size(); i += 2) {
      const uint32_t first = at + runs[i];
      at = first + runs[i + 1];
      *to++ = {first, at - 1, type};
    }
  };
  add(kLetterRuns, CharClass::letter);
  add(kNumberRuns, CharClass::number);
  add(kSpaceRuns, CharClass::space);
  std::ranges::sort(ranges, {}, &CharRange::first);
  return ranges;
}();

}  // namespace

std::span<const CharRange> char_ranges() { return kRanges; }

}  // namespace chiron""")
