#include "io/tensor_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/error.h"
#include "base/json_file.h"

namespace chiron {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

std::string in(const std::string& dir, std::string_view name) { return fmt::format("{}/{}", dir, name); }

void write_one(const std::string& path, std::vector<TensorToWrite> tensors) {
  FileWriter out(path);
  write_safetensors(out, std::move(tensors));
  out.sync();
  out.close();
}

/// Cuts the list, in its order, into files of at most `max_bytes`.
std::vector<std::vector<TensorToWrite>> split(std::vector<TensorToWrite> tensors, int64_t max_bytes) {
  std::vector<std::vector<TensorToWrite>> files(1);
  int64_t bytes = 0;
  for (TensorToWrite& t : tensors) {
    if (bytes + t.bytes() > max_bytes && !files.back().empty()) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += t.bytes();
    files.back().push_back(std::move(t));
  }
  return files;
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

TensorFiles::TensorFiles(const std::string& dir) {
  std::string single = in(dir, kSingle), index = in(dir, kIndex);
  if (file_exists(single)) {
    const SafetensorsFile& file = files_.emplace(kSingle, SafetensorsFile(single)).first->second;
    for (const StoredTensor& t : file.tensors()) tensors_.emplace(t.name, &file);
  } else if (file_exists(index)) {
    read_index(dir, index);
  } else {
    throw DataError("{}: neither {} nor {} is there", dir, kSingle, kIndex);
  }
}

void TensorFiles::read_index(const std::string& dir, const std::string& index) {
  JsonObject map = JsonObject::read(index).object("weight_map");
  std::vector<std::string> absent, unlisted;
  for (const std::string& name : map.keys()) {
    std::string file = map.text(name);
    if (file.empty() || file[0] == '.' || file.find('/') != std::string::npos)
      throw DataError("{}: weight_map.{} is \"{}\", expected the name of a file in the same folder", index, name, file);
    auto it = files_.find(file);
    if (it == files_.end()) {
      if (!file_exists(in(dir, file)))
        throw DataError("{}: {}, which should hold {}, is missing", index, in(dir, file), name);
      it = files_.emplace(file, SafetensorsFile(in(dir, file))).first;
    }
    if (it->second.find(name))
      tensors_.emplace(name, &it->second);
    else
      absent.push_back(fmt::format("{} ({})", name, file));
  }
  if (!absent.empty()) throw DataError("{}: listed, but not in the file named: {}", index, listed(absent));
  for (const auto& [name, file] : files_)
    for (const StoredTensor& t : file.tensors())
      if (file_of(t.name) != &file) unlisted.push_back(fmt::format("{} ({})", t.name, name));
  if (!unlisted.empty()) throw DataError("{}: in a file, but not listed there: {}", index, listed(unlisted));
}

std::vector<std::string> TensorFiles::names() const {
  const auto names = std::views::keys(tensors_);
  return {names.begin(), names.end()};
}

const SafetensorsFile* TensorFiles::file_of(std::string_view name) const {
  auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

void write_tensor_files(const std::string& dir, std::span<const StatePart> parts, std::optional<DType> as,
                        int64_t max_file_bytes) {
  auto files = split(tensors_to_write(parts, as), max_file_bytes);
  if (files.size() == 1) return write_one(in(dir, kSingle), std::move(files[0]));
  int64_t total = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0; i < files.size(); ++i) {
    std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    for (const TensorToWrite& t : files[i]) {
      weight_map[t.name()] = name;
      total += t.bytes();
    }
    write_one(in(dir, name), std::move(files[i]));
  }
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  write_synced(in(dir, kIndex), index.dump(2) + "\n");
}

}  // namespace chiron
