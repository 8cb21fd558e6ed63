#pragma once

#include <cstdint>
#include <functional>
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

/// Calls take(text, begins) for the parts of the documents of some ranges, in order: `begins` says whether a document
/// begins with it. Documents end at separators, if there are any, and with their range; empty ones are none. A part
/// ends where its document does or where safe_cut(text) says that one may end, whatever follows (0: nowhere in this
/// text). Parts are about a megabyte. IoError, naming the file, if one ends before its range does.
void each_part(const TextInputs& inputs, const std::vector<TextRange>& ranges, std::string_view separator,
               const std::function<size_t(std::string_view)>& safe_cut,
               const std::function<void(std::string_view text, bool begins)>& take);

}  // namespace chiron
