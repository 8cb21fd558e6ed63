#include "base/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace chiron {

namespace {

/// Takes a suffix off the text and returns its factor; 1 if there is none.
int64_t take_suffix(std::string_view& text) {
  if (text.size() < 2) return 1;
  int64_t factor = text.back() == 'k' ? 1'000 : text.back() == 'M' ? 1'000'000 : text.back() == 'G' ? 1'000'000'000 : 1;
  if (factor != 1) text.remove_suffix(1);
  return factor;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

/// What is wrong with a text that is neither a whole nor any other number; empty if nothing that is known.
std::string known_problem(std::string_view whole) {
  std::string_view digits = whole.starts_with('-') ? whole.substr(1) : whole;
  if (whole.starts_with('+')) return fmt::format("{} has a plus sign: write {}", whole, whole.substr(1));
  if (digits.starts_with("0x") || digits.starts_with("0X"))
    return fmt::format("{} is hexadecimal: write the number in decimal", whole);
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]))
    return fmt::format("{} has a leading zero, which YAML readers take for octal: write it without", whole);
  if (digits.find_first_of("_,'") != std::string_view::npos && is_digit(digits[0])) {
    std::string plain(whole);
    const size_t comma = plain.find_first_of("_,'");
    const size_t after = std::min(plain.find_first_not_of("0123456789", comma + 1), plain.size());
    const bool thousands = after - comma == 4 && digits[0] != '0';
    if (plain[comma] == ',' && plain.find_first_of("_,'", after) == std::string::npos && !thousands) {
      plain[comma] = '.';
      return fmt::format("{} has a comma where a decimal point belongs: {}", whole, plain);
    }
    std::erase_if(plain, [](char c) { return c == '_' || c == ',' || c == '\''; });
    return fmt::format("{} has digit separators: write {}", whole, plain);
  }
  char last = whole.empty() ? ' ' : whole.back();
  if ((last == 'K' || last == 'm' || last == 'g' || last == 'B') && is_digit(digits[0]))
    return fmt::format("{} ends in an unknown suffix: use k (10^3), M (10^6) or G (10^9)", whole);
  return "";
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text, std::string& problem) {
  std::string_view digits = text;
  int64_t factor = take_suffix(digits), number = 0;
  bool negative = digits.starts_with('-');
  problem = known_problem(text);
  if (!problem.empty()) return std::nullopt;
  auto fail = [&](std::string why) {
    problem = std::move(why);
    return std::nullopt;
  };
  if (!all_digits(digits.substr(negative ? 1 : 0))) {
    std::string unused;
    const auto real = parse_double(text, unused);
    if (real && *real == std::floor(*real) && std::fabs(*real) < 1e15)
      return fail(fmt::format("{} is not written as a whole number: write {}", text, static_cast<int64_t>(*real)));
    return fail(fmt::format("{} is no whole number", text.empty() ? "\"\"" : text));
  }
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || __builtin_mul_overflow(number, factor, &number))
    return fail(fmt::format("{} does not fit into 64 bits", text));
  return number;
}

std::optional<double> parse_double(std::string_view text, std::string& problem) {
  problem = known_problem(text);
  if (!problem.empty()) return std::nullopt;
  auto fail = [&](std::string why) {
    problem = std::move(why);
    return std::nullopt;
  };
  std::string_view digits = text;
  auto factor = static_cast<double>(take_suffix(digits));
  double number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  bool whole_text = !digits.empty() && end == digits.data() + digits.size();
  if (whole_text && error == std::errc::result_out_of_range)
    return fail(fmt::format("{} is beyond the range of a double", text));
  if (!whole_text || error != std::errc()) return fail(fmt::format("{} is no number", text.empty() ? "\"\"" : text));
  number *= factor;
  if (!std::isfinite(number)) return fail(fmt::format("{} is not finite", text));
  return number;
}

std::string shortest(double x) { return fmt::format("{}", x); }

std::string with_commas(int64_t n) {
  std::string digits = fmt::format("{}", n);
  const size_t sign = n < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string counted(int64_t n, std::string_view word) {
  return fmt::format("{} {}{}", with_commas(n), word, n == 1 ? "" : "s");
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace chiron
