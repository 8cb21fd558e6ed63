#include "data/text_input.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.h"
#include "data/token_set.h"

namespace chiron {

namespace {

namespace fs = std::filesystem;

/// Whether `prepare` wrote this folder: text may have a dataset.json of its own beside it.
bool holds_tokens(const std::string& folder) { return is_dataset(folder) && file_exists(folder + "/tokens-00000.bin"); }

/// Finds all files below a folder. Hidden ones are no text; what else is passed over is told.
class Walk {
 public:
  Walk(const std::string& folder, std::vector<std::string>& passed_over) : passed_over_(passed_over) {
    // Links to folders come last, so that a folder has its own name.
    for (links_ = {folder}; !links_.empty();) {
      const std::string next = links_.back();
      links_.pop_back();
      visit(next);
    }
    std::sort(files.begin(), files.end());
  }

  std::vector<std::string> files;

 private:
  void visit(const std::string& folder) {
    std::error_code error;
    if (!seen_.insert(fs::canonical(folder, error).string()).second)
      return pass_over(folder, "leads to a folder that is read already");
    if (holds_tokens(folder)) return pass_over(folder, "a data set, no text");
    for (const std::string& name : list_directory(folder)) {
      if (name.starts_with('.')) continue;
      const std::string path = (fs::path(folder) / name).string();
      if (file_exists(path))
        files.push_back(path);
      else if (!directory_exists(path))
        pass_over(path, "neither a file nor a folder");
      else if (fs::is_symlink(path, error))
        links_.push_back(path);
      else
        visit(path);
    }
  }
  void pass_over(const std::string& path, const char* why) { passed_over_.push_back(fmt::format("{}: {}", path, why)); }

  std::vector<std::string>& passed_over_;
  std::vector<std::string> links_;
  std::set<std::string> seen_;  // real paths
};

constexpr int64_t kReach = 1 << 16;

/// Where to cut a text near `at` (0 < at < size), of which kReach bytes follow unless it ends: after the end of a line,
/// else between two characters.
size_t good_cut(std::string_view text, size_t at, std::string_view separator) {
  size_t cut = at;
  if (size_t line = text.substr(0, at + kReach).find('\n', at - 1); line != std::string_view::npos) cut = line + 1;
  for (int i = 0; i < 3 && cut < text.size() && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80; ++i) ++cut;
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
      if (holds_tokens(input)) throw DataError("{}: a data set, no text: `chiron train` reads it as it is", input);
      size_t before = found.files.size();
      for (const std::string& file : Walk(input, found.passed_over).files) {
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
      // What decides: the separator may have begun before, and end behind the cut, which lies up to kReach + 3 ahead.
      const auto around = static_cast<int64_t>(separator.size()) + 4;
      const int64_t from = std::max<int64_t>(0, here - around), to = std::min(size, here + kReach + around);
      std::string text(static_cast<size_t>(to - from), '\0');
      FileReader(inputs.files[f]).read(from, text.data(), text.size());
      here = from + static_cast<int64_t>(good_cut(text, static_cast<size_t>(here - from), separator));
    }
    if (here > 0) parts.first.push_back({f, 0, here});
    if (here < size) parts.second.push_back({f, here, size});
    begin += size;
  }
  return parts;
}

void each_part(const TextInputs& inputs, const std::vector<TextRange>& ranges, std::string_view separator,
               const std::function<size_t(std::string_view)>& safe_cut,
               const std::function<void(std::string_view text, bool begins)>& take) {
  constexpr size_t kPart = 1 << 20;
  for (const TextRange& range : ranges) {
    FileReader file(inputs.files[range.file]);
    std::string buffer;
    size_t done = 0, want = kPart;  // bytes of the buffer that were taken; that should be there
    bool begins = true;
    auto give = [&](std::string_view text) {
      if (text.empty()) return;
      take(text, begins);
      begins = false;
    };
    for (int64_t at = range.begin;;) {
      const std::string_view text = std::string_view(buffer).substr(done);
      const bool last = at == range.end;
      if (const size_t end = separator.empty() ? text.npos : text.find(separator); end != text.npos) {
        give(text.substr(0, end));
        done += end + separator.size();
        begins = true;
        want = kPart;
      } else if (last) {
        give(text);
        break;
      } else if (text.size() < want) {
        buffer.erase(0, done);
        done = 0;
        const size_t there = buffer.size(), more = std::min(want - there, static_cast<size_t>(range.end - at));
        buffer.resize(there + more);
        file.read(at, buffer.data() + there, more);
        at += static_cast<int64_t>(more);
      } else {
        // Its end may be the beginning of a separator.
        const size_t unsure = separator.empty() ? 0 : std::min(text.size(), separator.size() - 1);
        const size_t cut = safe_cut(text.substr(0, text.size() - unsure));
        give(text.substr(0, cut));
        done += cut;
        want = cut ? kPart : 2 * want;
      }
    }
  }
}

}  // namespace chiron
