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

ranges, begin = [], 0x80
for code in range(0x80, 0x110000):
    if code + 1 == 0x110000 or classes[code + 1] != classes[begin]:
        if classes[begin]:
            ranges.append((begin, code, classes[begin]))
        begin = code + 1

print(f"""// Unicode {version}: written by tools/unicode_ranges.py.
#include "text/unicode_ranges.h"

namespace chiron {{

namespace {{

constexpr auto letter = CharClass::letter;
constexpr auto number = CharClass::number;
constexpr auto space = CharClass::space;

// clang-format off
constexpr CharRange kRanges[] = {{""")
line = "   "
for first, last, name in ranges:
    item = f" {{0x{first:x}, 0x{last:x}, {name}}},"
    if len(line) + len(item) > 120:
        print(line)
        line = "   "
    line += item
print(line)
print("""};
// clang-format on

}  // namespace

std::span<const CharRange> char_ranges() { return kRanges; }

}  // namespace chiron""")
