#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chiron {

/// Text to ids and back. Immutable: any number of threads may use one at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "byte" or "bpe": how data sets call it.
  virtual std::string_view name() const = 0;
  /// Ids are 0 .. vocab_size()-1.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document, where the vocabulary has one.
  virtual std::optional<int32_t> end_of_text() const = 0;
  /// The bytes that an id stands for. Throws DataError for an id outside the vocabulary.
  virtual std::string_view bytes_of(int32_t id) const = 0;
  /// Appends the ids of `text`, any bytes. Special tokens that are spelt out in the text become their ids.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The largest n such that ids of text[0, n) followed by ids of text[n, ...) are the ids of the whole, whatever
  /// comes after `text`; 0 if there is none. Long texts are encoded in pieces that end there.
  virtual size_t safe_cut(std::string_view text) const = 0;
  /// The vocabulary as the text of a Hugging Face tokenizer.json.
  virtual std::string json() const = 0;
  /// XXH3-128 in hex of all that decides ids: equal hashes, equal ids.
  virtual std::string hash() const = 0;

  std::vector<int32_t> encode(std::string_view text) const;
  /// The bytes of the ids, appended one after the other. Ids may end within a character: see complete_utf8().
  std::string decode(std::span<const int32_t> ids) const;
};

/// 256 ids, one per byte; no special token.
std::unique_ptr<Tokenizer> byte_tokenizer();

/// "byte", or the path of a tokenizer.json, or of a folder that holds one. Throws DataError with the path where the
/// file asks for something that would be encoded otherwise than its author means.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name_or_path);

}  // namespace chiron
