#include "base/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace chiron {

namespace {

int replace_cost(char a, char b) {
  auto fold = [](char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); };
  return a == b ? 0 : fold(a) == fold(b) ? 1 : 2;
}

}  // namespace

int half_edits(std::string_view a, std::string_view b) {
  size_t n = b.size();
  std::vector<int> before(n + 1), above(n + 1), row(n + 1);
  for (size_t j = 0; j <= n; ++j) above[j] = 2 * static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = 2 * static_cast<int>(i);
    for (size_t j = 1; j <= n; ++j) {
      row[j] = std::min({above[j] + 2, row[j - 1] + 2, above[j - 1] + replace_cost(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 2);
    }
    before = above;
    above = row;
  }
  return above[n];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  // A third of the letters wrong is still a misspelling; more is another word.
  int best = 2 * std::max(1, static_cast<int>(word.size() / 3)) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    int cost = half_edits(word, candidate);
    if (cost >= best) continue;
    best = cost;
    found = candidate;
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  std::string near = nearest(word, candidates);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

std::string no_choice(std::string_view shown, std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest(word, candidates);
  return fmt::format("{} is no choice{}", shown, near.empty() ? "" : ": did you mean " + near + "?");
}

}  // namespace chiron
