#include <algorithm>
#include <bit>

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

/// Reads the elements of a box that lies within the tensor's, one after the other.
void read_box(const StoredTensor& t, const Box& stored, const Box& box, std::byte* to) {
  // Dimensions from `outer` on are one run of bytes.
  int outer = box.size.rank;
  int64_t run = size_of(*t.dtype);
  while (outer > 0) {
    run *= box.size[--outer];
    if (box.size[outer] != stored.size[outer]) break;
  }
  const int64_t runs = box.size.numel() * size_of(*t.dtype) / run;
  for (int64_t i = 0; i < runs; ++i) {
    int64_t from = 0, step = size_of(*t.dtype), rest = i;
    for (int dim = box.size.rank - 1; dim >= 0; --dim) {
      int64_t index = box.offset[dim] - stored.offset[dim];
      if (dim < outer) {
        index += rest % box.size[dim];
        rest /= box.size[dim];
      }
      from += index * step;
      step *= stored.size[dim];
    }
    t.read(from, to + i * run, run);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(std::make_unique<FileReader>(path)) {
  uint64_t size = 0;
  if (file_->size() < 8)
    throw DataError("{}: {} bytes are no safetensors file, which starts with 8 bytes of header length", path,
                    file_->size());
  file_->read(0, &size, 8);
  if (size > kMaxHeader)
    throw DataError("{}: no safetensors file: the first 8 bytes give a header of {} bytes, at most {} are allowed",
                    path, size, kMaxHeader);
  auto rest = static_cast<uint64_t>(file_->size() - 8);
  if (size > rest)
    throw DataError("{}: cut short: the header should have {} bytes, the file goes on for {}", path, size, rest);
  std::string header(size, '\0');
  file_->read(8, header.data(), size);
  if (header.empty() || header[0] != '{')
    throw DataError("{}: no safetensors file: the header must begin with '{{' at byte 8", path);
  const auto data = static_cast<int64_t>(8 + size);
  parse(header, data);
  check_layout(data);
}

void SafetensorsFile::parse(std::string_view text, int64_t data) {
  Header header = parse_safetensors_header(text, path());
  metadata_ = std::move(header.metadata);
  const auto limit = static_cast<uint64_t>(file_->size() - data);
  for (HeaderEntry& entry : header.entries) {
    const SafetensorsType* type = safetensors_type(entry.type);
    if (!type)
      throw DataError("{}: tensor {}: unknown dtype {}; known: {}", path(), entry.name, entry.type,
                      safetensors_type_names());
    StoredTensor t{.name = entry.name, .type = entry.type, .dtype = type->dtype, .shape = {}, .file = file_.get()};
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
    t.at = data + static_cast<int64_t>(begin);
    t.bytes = static_cast<int64_t>(end - begin);
    tensors_.push_back(std::move(t));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

/// The tensors' bytes follow each other from the first byte of data to the file's last.
void SafetensorsFile::check_layout(int64_t data) const {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& t : tensors_) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->at != b->at ? a->at < b->at : a->bytes < b->bytes; });
  int64_t at = data;
  const StoredTensor* previous = nullptr;
  for (const StoredTensor* t : order) {
    if (t->at < at)
      throw DataError("{}: tensors {} and {} overlap at byte {} of the data", path(), previous->name, t->name,
                      t->at - data);
    if (t->at > at)
      throw DataError("{}: tensor {}: a hole of {} bytes before it, at byte {} of the data", path(), t->name,
                      t->at - at, at - data);
    at = t->at + t->bytes;
    previous = t;
  }
  if (at != file_->size())
    throw DataError("{}: {} bytes after the last tensor belong to none", path(), file_->size() - at);
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
  const BoxView to = box_view(part);
  const Box both = common(to.box, {offset, shape});
  const int64_t n = both.size.numel();
  if (n == 0) return 0;
  if (to.dtype == *t.dtype && both.size == to.box.size && lies_in_file_order(to)) {
    read_box(t, {offset, shape}, both, reinterpret_cast<std::byte*>(to.at));
    return n;
  }
  // Through a block that stays in the cache; in rows, so that one that is transposed is copied tile by tile.
  constexpr int64_t kBlock = 1 << 18;
  const int64_t rows = both.size.rank ? both.size[0] : 1, row_bytes = n / rows * size_of(*t.dtype);
  const int64_t most = std::clamp<int64_t>(kBlock / row_bytes, 1, rows);
  std::vector<std::byte> memory(static_cast<size_t>(most * row_bytes));
  for (int64_t row = 0; row < rows; row += most) {
    Box block = both;
    if (both.size.rank) {
      block.offset[0] += row;
      block.size[0] = std::min(most, rows - row);
    }
    read_box(t, {offset, shape}, block, memory.data());
    copy_box(to, box_view(reinterpret_cast<uintptr_t>(memory.data()), *t.dtype, block));
  }
  return n;
}

}  // namespace chiron
