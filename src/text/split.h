#pragma once

#include <cstddef>
#include <string_view>

namespace chiron {

/// End of the piece that GPT-2's split pattern finds at text[at] (at < size):
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Pieces follow each other without gaps. A byte that is not valid UTF-8 counts as a character of no class, so any
/// bytes can be split.
size_t gpt2_piece_end(std::string_view text, size_t at);

}  // namespace chiron
