#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"

namespace chiron {

/// Text files read one after the other.
struct TextInputs {
  std::vector<std::string> files;  ///< none of them empty
  std::vector<int64_t> sizes;
  int64_t empty_files = 0;               ///< passed over in folders
  std::vector<std::string> passed_over;  ///< "PATH: reason", in folders: what is neither text nor a folder of it

  int64_t bytes() const;
};

/// Files as they are named, folders as all files below them, links to folders followed. Each folder is read once,
/// whatever leads to it. Throws DataError, naming the input, if one is missing, empty, a data set or holds no text.
TextInputs find_text(const std::vector<std::string>& inputs);

/// A stretch of the inputs: within one file.
struct TextRange {
  size_t file;
  int64_t begin, end;
};

/// Cuts the inputs in two: the second part has about the fraction `last` of the bytes. The cut lies after the end of a
/// line, if one is near, never within a character or a separator.
std::pair<std::vector<TextRange>, std::vector<TextRange>> split_text(const TextInputs& inputs, double last,
                                                                     std::string_view separator);

/// Calls document(text) for each non-empty document of a range.
template <class F>
void each_document(std::string_view text, std::string_view separator, F&& document) {
  for (;;) {
    size_t end = separator.empty() ? std::string_view::npos : text.find(separator);
    if (std::string_view one = text.substr(0, end); !one.empty()) document(one);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + separator.size());
  }
}

}  // namespace chiron
