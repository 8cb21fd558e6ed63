#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "core/staging.h"
#include "core/state.h"

/// The safetensors format (github.com/huggingface/safetensors, safetensors/src/tensor.rs): u64 header length, JSON
/// header, data. Little-endian, row-major.
namespace chiron {

/// One tensor of a file.
struct StoredTensor {
  std::string name;
  std::string type;                  ///< as the file spells it: "F32", "BF16", "I64", ...
  std::optional<DType> dtype;        ///< absent: a type of the format that Chiron has no name for (BOOL, I8, F4, ...)
  std::vector<int64_t> shape;        ///< {} is a scalar; sizes may be 0
  const FileReader* file = nullptr;  ///< that holds it
  int64_t at = 0, bytes = 0;         ///< where in the file, and how many

  /// Bytes from .. from + n - 1 of it. IoError.
  void read(int64_t from, void* to, int64_t n) const { file->read(at + from, to, static_cast<size_t>(n)); }
};

/// A file opened for reading. Opening checks all that the format promises and throws a DataError, with file and tensor,
/// for what breaks it. Values are not looked at. Immutable, so any thread may read. A file that is cut short while it
/// is open is an IoError of the reads, which names it.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  /// In order of their names.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// nullptr if the file has no tensor of this name.
  const StoredTensor* find(std::string_view name) const;
  /// The same, or a DataError.
  const StoredTensor& at(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Fills part.data from the tensor part.name, whose shape must be part.global, converting between float kinds.
  /// DataError: no such tensor, another shape, a type that does not convert.
  void read(const StatePart& part) const;
  /// Copies the elements that part.part shares with the stored tensor, which lies at `offset` of the global one, into
  /// part.data. Returns their number.
  int64_t read_overlap(const StatePart& part, const Shape& offset) const;

 private:
  /// `data`: where the tensors' bytes begin.
  void parse(std::string_view header, int64_t data);
  void check_layout(int64_t data) const;

  std::unique_ptr<const FileReader> file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// The shape of a stored tensor; DataError (naming `file`) for more dimensions than Shape holds.
Shape shape_of(const StoredTensor& tensor, const std::string& file);

/// One tensor to write: the box that its parts tile. Parts of one name are one tensor; usually there is one part.
struct TensorToWrite {
  std::vector<const StatePart*> parts;
  DType dtype = DType::f32;  ///< in the file
  Box box;                   ///< the bounding box of the parts, which tile it exactly

  const std::string& name() const { return parts.front()->name; }
  int64_t bytes() const { return box.size.numel() * size_of(dtype); }
};

/// The parts in as few lists as each can be one file: parts of one tensor that make up no box together (the rows of q,
/// k and v that a tensor rank has of one matrix) go to several.
std::vector<std::vector<StatePart>> split_into_files(std::span<const StatePart> parts);

/// Joins parts by name, in order of first appearance. `as` is the type to write floats in; without it each keeps its
/// own. The parts outlive the result. Throws Bug if parts of one name overlap, leave holes or disagree.
std::vector<TensorToWrite> tensors_to_write(std::span<const StatePart> parts, std::optional<DType> as = std::nullopt);

/// Writes a whole file in the order and with the padding of the reference writer; tensors must have distinct names.
/// Streams: needs a few MB of memory beside the tensors', from a device more (see Staging; a tensor that is transposed
/// or of several parts as a whole). `__metadata__` is {"format": "pt"} and `metadata`. Neither syncs nor closes.
void write_safetensors(FileWriter& out, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {}, const Staging& staging = {});
/// The same for a file of its own, replaced as a whole.
void write_safetensors_file(const std::string& path, std::span<const StatePart> parts,
                            std::optional<DType> as = std::nullopt,
                            const std::map<std::string, std::string>& metadata = {});

}  // namespace chiron
