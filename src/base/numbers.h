#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chiron {

/// A decimal whole number with an optional suffix k, M or G (10^3, 10^6, 10^9). Nothing else is a number here: no
/// octal 010, no 0x10, no 1_000, no 1e6. On failure `problem` says what is wrong and what to write.
std::optional<int64_t> parse_int(std::string_view text, std::string& problem);

/// A finite decimal number, with exponent or suffix k, M, G. inf, nan and numbers beyond double's range are refused.
std::optional<double> parse_double(std::string_view text, std::string& problem);

/// The shortest text that parse_double() reads back as the same number.
std::string shortest(double x);

/// 1,234,567
std::string with_commas(int64_t n);
/// "1 file", "1,234 files": the word in the singular, of which the plural has an s.
std::string counted(int64_t n, std::string_view word);
/// "512 B", "38.4 MB", "1.21 GB": powers of 1000, three digits.
std::string bytes_text(int64_t bytes);

}  // namespace chiron
