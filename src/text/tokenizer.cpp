#include "text/tokenizer.h"

#include "base/error.h"
#include "base/files.h"
#include "text/bpe.h"
#include "text/tokenizer_json.h"

namespace chiron {

namespace {

/// The bytes as a vocabulary of tokens, which nothing merges.
BpeModel byte_model() {
  BpeModel model;
  for (size_t b = 0; b < 256; ++b) model.tokens.emplace_back(1, static_cast<char>(b));
  return model;
}

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() : bytes_(256, '\0') {
    for (size_t b = 0; b < 256; ++b) bytes_[b] = static_cast<char>(b);
  }
  std::string_view name() const override { return "byte"; }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> end_of_text() const override { return {}; }
  std::string_view bytes_of(int32_t id) const override {
    if (id < 0 || id > 255) throw DataError("token id {} is not a byte: the byte tokenizer has ids 0 to 255", id);
    return std::string_view(bytes_).substr(static_cast<size_t>(id), 1);
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    size_t at = ids.size();
    ids.resize(at + text.size());
    for (char c : text) ids[at++] = static_cast<uint8_t>(c);
  }
  size_t safe_cut(std::string_view text) const override { return text.size(); }
  std::string json() const override { return write_tokenizer_json(byte_model()); }
  std::string hash() const override { return hash128(std::string_view("byte")).hex(); }

 private:
  std::string bytes_;
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (int32_t id : ids) bytes += bytes_of(id);
  return bytes;
}

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return byte_tokenizer();
  std::string path = directory_exists(name_or_path) ? name_or_path + "/tokenizer.json" : name_or_path;
  if (!file_exists(path))
    throw DataError("no tokenizer '{}': expected 'byte' or the path of a tokenizer.json that exists", name_or_path);
  BpeModel model = read_tokenizer_json(read_file(path), path);
  const bool bytes = model.merges.empty() && model.added.empty() && model.tokens == byte_model().tokens;
  return bytes ? byte_tokenizer() : std::make_unique<Bpe>(std::move(model));
}

}  // namespace chiron
