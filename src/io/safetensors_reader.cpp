#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "io/box_copy.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"
#include "io/safetensors_types.h"

namespace chiron {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kMaxHeader = 100'000'000;

/// "[2, 3]"
std::string shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  uint64_t size = 0;
  if (file_.size() < 8)
    throw DataError("{}: {} bytes are no safetensors file, which starts with 8 bytes of header length", path,
                    file_.size());
  std::memcpy(&size, file_.data(), 8);
  if (size > kMaxHeader)
    throw DataError("{}: no safetensors file: the first 8 bytes give a header of {} bytes, at most {} are allowed",
                    path, size, kMaxHeader);
  auto rest = static_cast<uint64_t>(file_.size() - 8);
  if (size > rest)
    throw DataError("{}: cut short: the header should have {} bytes, the file goes on for {}", path, size, rest);
  std::string_view header(reinterpret_cast<const char*>(file_.data()) + 8, size);
  if (header.empty() || header[0] != '{')
    throw DataError("{}: no safetensors file: the header must begin with '{{' at byte 8", path);
  parse(header);
  check_layout();
}

void SafetensorsFile::parse(std::string_view text) {
  Header header = parse_safetensors_header(text, path());
  metadata_ = std::move(header.metadata);
  const std::byte* data = file_.data() + 8 + text.size();
  auto limit = static_cast<uint64_t>(file_.size()) - 8 - text.size();
  for (HeaderEntry& entry : header.entries) {
    const SafetensorsType* type = safetensors_type(entry.type);
    if (!type)
      throw DataError("{}: tensor {}: unknown dtype {}; known: {}", path(), entry.name, entry.type,
                      safetensors_type_names());
    StoredTensor t{entry.name, entry.type, type->dtype, {}, nullptr, 0};
    // Bits of the shape's elements, with no overflow on the way.
    uint64_t bits = static_cast<uint64_t>(type->bits);
    bool overflow = false;
    for (uint64_t d : entry.shape) {
      overflow |= d > static_cast<uint64_t>(INT64_MAX) || __builtin_mul_overflow(bits, d, &bits);
      t.shape.push_back(static_cast<int64_t>(d));
    }
    if (overflow)
      throw DataError("{}: tensor {}: the shape [{}] is too large", path(), t.name, fmt::join(entry.shape, ", "));
    if (bits % 8 != 0)
      throw DataError("{}: tensor {}: {} elements of {} bits are no whole number of bytes", path(), t.name,
                      bits / static_cast<uint64_t>(type->bits), type->bits);
    uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (end < begin) throw DataError("{}: tensor {}: data_offsets [{}, {}] run backwards", path(), t.name, begin, end);
    if (end > limit)
      throw DataError(
          "{}: tensor {}: data_offsets [{}, {}] pass the file's end: it has {} bytes of data; is the file cut "
          "short?",
          path(), t.name, begin, end, limit);
    if (end - begin != bits / 8)
      throw DataError("{}: tensor {}: {} {} takes {} bytes, but data_offsets [{}, {}] give it {}", path(), t.name,
                      entry.type, shown(t.shape), bits / 8, begin, end, end - begin);
    t.data = data + begin;
    t.bytes = static_cast<int64_t>(end - begin);
    tensors_.push_back(std::move(t));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

/// The tensors' bytes follow each other from the first byte of data to the file's last.
void SafetensorsFile::check_layout() {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& t : tensors_) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->data != b->data ? a->data < b->data : a->bytes < b->bytes; });
  uint64_t header = 0;
  std::memcpy(&header, file_.data(), 8);
  const std::byte* data = file_.data() + 8 + header;
  const std::byte* at = data;
  const StoredTensor* previous = nullptr;
  for (const StoredTensor* t : order) {
    if (t->data < at)
      throw DataError("{}: tensors {} and {} overlap at byte {} of the data", path(), previous->name, t->name,
                      t->data - data);
    if (t->data > at)
      throw DataError("{}: tensor {}: a hole of {} bytes before it, at byte {} of the data", path(), t->name,
                      t->data - at, at - data);
    at = t->data + t->bytes;
    previous = t;
  }
  const std::byte* end = file_.data() + file_.size();
  if (at != end) throw DataError("{}: {} bytes after the last tensor belong to none", path(), end - at);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                             [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* t = find(name)) return *t;
  throw DataError("{}: there is no tensor {}", path(), name);
}

Shape shape_of(const StoredTensor& tensor, const std::string& file) {
  if (tensor.shape.size() > Shape::kMaxRank)
    throw DataError("{}: tensor {}: shape {} has more than {} dimensions", file, tensor.name, shown(tensor.shape),
                    Shape::kMaxRank);
  Shape shape;
  for (int64_t d : tensor.shape) shape[shape.rank++] = d;
  return shape;
}

void SafetensorsFile::read(const StatePart& part) const {
  const StoredTensor& t = at(part.name);
  if (shape_of(t, path()) != part.global)
    throw DataError("{}: tensor {}: the shape is {}, expected {}", path(), t.name, shape_of(t, path()).str(),
                    part.global.str());
  Shape origin = part.global;
  origin.dims.fill(0);
  read_overlap(part, origin);
}

int64_t SafetensorsFile::read_overlap(const StatePart& part, const Shape& offset) const {
  const StoredTensor& t = at(part.name);
  Shape shape = shape_of(t, path());
  if (shape.rank != part.global.rank)
    throw DataError("{}: tensor {}: the shape is {}, expected a part of {}", path(), t.name, shape.str(),
                    part.global.str());
  if (!t.dtype || !convertible(*t.dtype, part.data.dtype))
    throw DataError("{}: tensor {}: the type is {}, which does not convert to {}", path(), t.name, t.type,
                    name_of(part.data.dtype));
  int64_t copied = copy_box(box_view(part), box_view(reinterpret_cast<uintptr_t>(t.data), *t.dtype, {offset, shape}));
  file_.drop_pages();  // else a model that is read would be in memory twice
  return copied;
}

}  // namespace chiron
