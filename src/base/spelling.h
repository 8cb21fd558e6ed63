#pragma once

#include <span>
#include <string>
#include <string_view>

namespace chiron {

/// Edits (insert, delete, replace, swap neighbours) that turn `a` into `b`; letter case and '-' against '_' count as
/// half of one, so that they lose against nothing but an exact match. In half edits.
int half_edits(std::string_view a, std::string_view b);

/// The candidate that a misspelt word most likely meant; empty if none is near.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean X?", or nothing if no candidate is near: ready to append to a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// "SHOWN is no choice", and the nearest candidate to `word` if one is near: what an option fails with.
std::string no_choice(std::string_view shown, std::string_view word, std::span<const std::string> candidates);

}  // namespace chiron
