#include "data/text_input.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/error.h"

namespace chiron {

namespace {

namespace fs = std::filesystem;

std::string_view view_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

/// All regular files below a folder, sorted by path.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) {
    bool hidden = it->path().filename().native().starts_with('.');
    if (it->is_directory() && hidden) it.disable_recursion_pending();
    if (it->is_regular_file() && !hidden) found.push_back(it->path().string());
  }
  if (error) throw IoError("cannot read the folder {}: {}", folder, error.message());
  std::sort(found.begin(), found.end());
  return found;
}

/// Where to cut a text near `at` (0 < at < size): after a line's end no further than 64 KiB away, else between two
/// characters.
size_t good_cut(std::string_view text, size_t at, std::string_view separator) {
  constexpr size_t kReach = 1 << 16;
  size_t cut = at;
  if (size_t line = text.substr(0, std::min(text.size(), at + kReach)).find('\n', at - 1);
      line != std::string_view::npos)
    cut = line + 1;
  while (cut < text.size() && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) ++cut;
  if (!separator.empty()) {
    size_t from = cut - std::min(cut, separator.size() - 1);
    size_t found = text.find(separator, from);
    if (found < cut) cut = found + separator.size();
  }
  return cut;
}

}  // namespace

int64_t TextInputs::bytes() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

TextInputs find_text(const std::vector<std::string>& inputs) {
  if (inputs.empty()) throw DataError("no input: name at least one text file or folder");
  TextInputs found;
  for (const std::string& input : inputs) {
    if (file_exists(input)) {
      int64_t size = file_size(input);
      if (size == 0) throw DataError("{}: the file is empty", input);
      found.files.push_back(input);
      found.sizes.push_back(size);
    } else if (directory_exists(input)) {
      size_t before = found.files.size();
      for (const std::string& file : files_below(input)) {
        int64_t size = file_size(file);
        if (size == 0) {
          ++found.empty_files;
          continue;
        }
        found.files.push_back(file);
        found.sizes.push_back(size);
      }
      if (found.files.size() == before) throw DataError("{}: the folder holds no file with text", input);
    } else {
      std::error_code error;
      if (fs::exists(input, error))
        throw DataError("{}: neither a regular file nor a folder; text is read twice", input);
      throw DataError("{}: no such file or folder", input);
    }
  }
  return found;
}

std::pair<std::vector<TextRange>, std::vector<TextRange>> split_text(const TextInputs& inputs, double last,
                                                                     std::string_view separator) {
  std::pair<std::vector<TextRange>, std::vector<TextRange>> parts;
  int64_t total = inputs.bytes();
  int64_t cut = total - std::llround(static_cast<double>(total) * last), begin = 0;
  for (size_t f = 0; f < inputs.files.size(); ++f) {
    int64_t size = inputs.sizes[f], here = std::clamp(cut - begin, int64_t{0}, size);
    if (here > 0 && here < size) {
      MappedFile file(inputs.files[f]);
      here = static_cast<int64_t>(good_cut(view_of(file), static_cast<size_t>(here), separator));
    }
    if (here > 0) parts.first.push_back({f, 0, here});
    if (here < size) parts.second.push_back({f, here, size});
    begin += size;
  }
  return parts;
}

}  // namespace chiron
