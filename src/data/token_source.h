#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace chiron {

/// One long sequence of tokens, cut into documents. Immutable; any number of threads may read at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// The folder or file, or what the source is: for messages.
  virtual std::string name() const = 0;
  virtual int64_t num_tokens() const = 0;
  /// Ids are below this.
  virtual int64_t vocab_size() const = 0;
  /// Bytes of the raw text that the tokens stand for; 0 where there was no text.
  virtual int64_t text_bytes() const = 0;
  /// Tells other tokens from these: a run goes on only with the data it began with. Of sources on disk it is made from
  /// their checksums; what is made up on the spot is told by its name.
  virtual std::string fingerprint() const { return name(); }
  /// Tokens begin .. begin + out.size() - 1, all of which exist. Throws DataError for an id outside the vocabulary.
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
  /// Where the first document that begins after `token` begins; num_tokens() if none does. The document that holds a
  /// token ends there.
  virtual int64_t next_document(int64_t token) const = 0;
};

}  // namespace chiron
