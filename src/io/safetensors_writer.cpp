#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/box_copy.h"
#include "io/safetensors.h"
#include "io/safetensors_types.h"

namespace chiron {
namespace {

/// Bytes that are gathered, converted and transposed before they go to the writer.
constexpr int64_t kBlockBytes = int64_t{1} << 18;

Box bounding_box(const std::vector<const StatePart*>& parts) {
  Box box = parts.front()->part;
  for (const StatePart* p : parts)
    for (int i = 0; i < box.size.rank; ++i) {
      int64_t begin = std::min(box.offset[i], p->part.offset[i]);
      int64_t end = std::max(box.offset[i] + box.size[i], p->part.offset[i] + p->part.size[i]);
      box.offset[i] = begin;
      box.size[i] = end - begin;
    }
  return box;
}

/// Parts that overlap in no pair and have the box's volume together tile it.
void check_tiles(const TensorToWrite& t) {
  int64_t total = 0;
  for (size_t i = 0; i < t.parts.size(); ++i) {
    total += t.parts[i]->part.size.numel();
    for (size_t j = 0; j < i; ++j)
      CHECK(common(t.parts[i]->part, t.parts[j]->part).size.numel() == 0, "parts of {} overlap", t.name());
  }
  CHECK(total == t.box.size.numel(), "parts of {} do not fill {}", t.name(), t.box.size.str());
}

void write_data(FileWriter& out, const TensorToWrite& t, const Staging& staging) {
  if (t.bytes() == 0) return;
  std::vector<BoxView> sources;
  std::vector<Rows> data;
  for (const StatePart* p : t.parts) {
    sources.push_back(box_view(*p));
    data.push_back(p->data);
  }
  if (sources.size() == 1 && sources[0].dtype == t.dtype && lies_in_file_order(sources[0]))
    return staging.read({sources[0].at, DType::u8, {t.bytes()}}, [&](View block, int64_t) {
      out.write(reinterpret_cast<const void*>(block.at), static_cast<size_t>(block.bytes()));
    });
  staging.hold(data);
  for (size_t i = 0; i < data.size(); ++i) sources[i].at = data[i].at;
  const bool scalar = t.box.size.rank == 0;
  const int64_t rows = scalar ? 1 : t.box.size[0], row_bytes = t.bytes() / rows;
  const int64_t block_rows = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, rows);
  std::vector<std::byte> block(static_cast<size_t>(block_rows * row_bytes));
  for (int64_t row = 0; row < rows; row += block_rows) {
    Box box = t.box;
    if (!scalar) {
      box.offset[0] += row;
      box.size[0] = std::min(block_rows, rows - row);
    }
    BoxView to = box_view(reinterpret_cast<uintptr_t>(block.data()), t.dtype, box);
    for (const BoxView& from : sources) copy_box(to, from);
    out.write(block.data(), static_cast<size_t>(box.size.numel() * size_of(t.dtype)));
  }
}

/// A JSON string; a name that is no UTF-8 cannot stand in a header.
std::string quoted(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw DataError("{}: the name \"{}\" is not UTF-8 and cannot be written", path, text);
  }
}

std::string header_of(const std::vector<TensorToWrite>& tensors, std::map<std::string, std::string> metadata,
                      const std::string& path) {
  metadata.emplace("format", "pt");  // readers refuse or warn without it
  std::string header = "{\"__metadata__\":{";
  const char* separator = "";
  for (const auto& [key, value] : metadata) {
    header += fmt::format("{}{}:{}", separator, quoted(key, path), quoted(value, path));
    separator = ",";
  }
  header += "}";
  int64_t at = 0;
  for (const TensorToWrite& t : tensors) {
    const Shape& s = t.box.size;
    header += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(t.name(), path),
                          safetensors_type(t.dtype).name, fmt::join(s.dims.begin(), s.dims.begin() + s.rank, ","), at,
                          at + t.bytes());
    at += t.bytes();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

std::vector<std::vector<StatePart>> split_into_files(std::span<const StatePart> parts) {
  std::map<std::string_view, std::vector<const StatePart*>> by_name;
  for (const StatePart& part : parts) by_name[part.name].push_back(&part);
  auto is_box = [](const std::vector<const StatePart*>& some) {
    int64_t elements = 0;
    for (const StatePart* p : some) elements += p->part.size.numel();
    return elements == bounding_box(some).size.numel();
  };
  std::vector<std::vector<StatePart>> files;
  auto add = [&](size_t file, const StatePart& part) {
    if (files.size() <= file) files.resize(file + 1);
    files[file].push_back(part);
  };
  for (const auto& [name, all] : by_name) {
    const bool one = is_box(all);
    std::vector<const StatePart*> box;
    size_t file = 0;
    for (const StatePart* part : all) {
      box.push_back(part);
      if (!one && !is_box(box)) {
        ++file;
        box = {part};
      }
      add(file, *part);
    }
  }
  return files;
}

std::vector<TensorToWrite> tensors_to_write(std::span<const StatePart> parts, std::optional<DType> as) {
  std::map<std::string_view, size_t> places;
  std::vector<TensorToWrite> tensors;
  for (const StatePart& part : parts) {
    auto [place, fresh] = places.emplace(part.name, tensors.size());
    if (fresh) tensors.emplace_back();
    tensors[place->second].parts.push_back(&part);
  }
  for (TensorToWrite& t : tensors) {
    const StatePart& first = *t.parts.front();
    for (const StatePart* p : t.parts)
      CHECK(p->global == first.global && p->data.dtype == first.data.dtype, "parts of {} disagree", t.name());
    t.dtype = as && convertible(first.data.dtype, *as) ? *as : first.data.dtype;
    t.box = bounding_box(t.parts);
    check_tiles(t);
  }
  return tensors;
}

void write_safetensors(FileWriter& out, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata, const Staging& staging) {
  auto order = [](const TensorToWrite& t) { return safetensors_type(t.dtype).order; };
  std::sort(tensors.begin(), tensors.end(), [&](const TensorToWrite& a, const TensorToWrite& b) {
    return order(a) != order(b) ? order(a) > order(b) : a.name() < b.name();
  });
  std::string header = header_of(tensors, metadata, out.path());
  uint64_t size = header.size();
  out.write(&size, sizeof size);
  out.write(header);
  for (const TensorToWrite& t : tensors) write_data(out, t, staging);
}

void write_safetensors_file(const std::string& path, std::span<const StatePart> parts, std::optional<DType> as,
                            const std::map<std::string, std::string>& metadata) {
  FileWriter out(path, FileWriter::Mode::replace);
  write_safetensors(out, tensors_to_write(parts, as), metadata);
  out.close();
}

}  // namespace chiron
