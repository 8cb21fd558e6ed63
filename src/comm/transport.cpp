#include "comm/transport.h"

#include <fmt/format.h>

namespace chiron {

void RankState::begin(const CommCall& call) {
  newest_ = (newest_ + 1) % recent_.size();
  recent_[newest_] = {.call = call, .used = true};
}

std::string RankState::recent_calls() const {
  std::string text;
  for (size_t i = 0; i < recent_.size(); ++i) {
    const Entry& e = recent_[(newest_ + recent_.size() - i) % recent_.size()];
    if (!e.used) break;
    text += fmt::format("  {}: {}\n", describe(e.call), e.done ? "done" : "not finished");
  }
  return text;
}

std::string RankState::describe(const CommCall& call) const {
  const auto group = static_cast<size_t>(call.group);
  const bool known = group < names_.size() && !names_[group].empty();
  return fmt::format("{} in the group {}", call.str(), known ? names_[group] : fmt::format("number {}", group));
}

void RankState::name_group(int group, const std::string& name) {
  if (static_cast<size_t>(group) >= names_.size()) names_.resize(static_cast<size_t>(group) + 1);
  names_[static_cast<size_t>(group)] = name;
}

}  // namespace chiron
