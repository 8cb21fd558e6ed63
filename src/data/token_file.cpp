#include "data/token_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace chiron {

namespace {

constexpr std::string_view kMagic = "CHIRONTK";
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version, token_bytes;
  int64_t tokens, text_bytes, vocab_size, documents;
  char vocabulary_hash[32], tokenizer[32];
  uint64_t checksum_high, checksum_low;
  char zeros[120];
  uint64_t check;
};
static_assert(sizeof(Header) == 256);

uint64_t check_of(const Header& h) { return hash128(&h, offsetof(Header, check)).low; }

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

std::string text_of(const char* field, size_t size) { return {field, strnlen(field, size)}; }

/// The first bytes of a file, as a message can show them.
std::string shown(std::string_view bytes) {
  std::string out;
  for (char c : bytes.substr(0, 8))
    out += c >= 32 && c < 127 ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return out;
}

bool looks_like_text(std::string_view bytes) {
  return std::none_of(bytes.begin(), bytes.end(),
                      [](char c) { return c >= 0 && c < 32 && c != '\n' && c != '\t' && c != '\r'; });
}

template <class T>
void widen(const std::byte* from, int64_t vocab_size, std::span<int32_t> out, const std::string& path, int64_t begin) {
  uint32_t top = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    out[i] = static_cast<int32_t>(id);
    top = std::max(top, static_cast<uint32_t>(id));
  }
  if (top < vocab_size) return;
  for (size_t i = 0; i < out.size(); ++i)
    if (static_cast<uint32_t>(out[i]) >= vocab_size)
      throw DataError("{}: token {} is {}, but the vocabulary has {} ids: the file is damaged", path,
                      begin + static_cast<int64_t>(i), out[i], vocab_size);
}

}  // namespace

int64_t TokenFileInfo::file_bytes() const {
  return static_cast<int64_t>(sizeof(Header)) + padded(tokens * token_bytes()) + documents * 8;
}

TokenFileInfo write_token_file(const std::string& path, TokenFileInfo info, std::span<const int32_t> tokens,
                               std::span<const int64_t> starts) {
  CHECK(info.vocabulary_hash.size() == 32 && info.tokenizer.size() <= 32);
  info.tokens = static_cast<int64_t>(tokens.size());
  info.documents = static_cast<int64_t>(starts.size());
  std::vector<uint16_t> narrow;
  std::span<const std::byte> payload = std::as_bytes(tokens);
  if (info.token_bytes() == 2) {
    narrow.assign(tokens.begin(), tokens.end());
    payload = std::as_bytes(std::span(narrow));
  }
  const char zeros[8] = {};
  auto padding = static_cast<size_t>(padded(static_cast<int64_t>(payload.size()))) - payload.size();

  Hasher hasher;
  hasher.update(payload.data(), payload.size());
  hasher.update(zeros, padding);
  hasher.update(starts.data(), starts.size_bytes());
  info.checksum = hasher.digest();

  Header h{};
  kMagic.copy(h.magic, sizeof h.magic);
  h.version = kVersion;
  h.token_bytes = static_cast<uint32_t>(info.token_bytes());
  h.tokens = info.tokens;
  h.text_bytes = info.text_bytes;
  h.vocab_size = info.vocab_size;
  h.documents = info.documents;
  info.vocabulary_hash.copy(h.vocabulary_hash, sizeof h.vocabulary_hash);
  info.tokenizer.copy(h.tokenizer, sizeof h.tokenizer);
  h.checksum_high = info.checksum.high;
  h.checksum_low = info.checksum.low;
  h.check = check_of(h);

  FileWriter file(path);
  file.write(&h, sizeof h);
  file.write(payload.data(), payload.size());
  file.write(zeros, padding);
  file.write(starts.data(), starts.size_bytes());
  file.sync();
  file.close();
  return info;
}

TokenFile::TokenFile(const std::string& path) : file_(path) {
  std::string bytes(static_cast<size_t>(std::min<int64_t>(file_.size(), sizeof(Header))), '\0');
  file_.read(0, bytes.data(), bytes.size());
  if (!bytes.starts_with(kMagic)) {
    if (bytes.size() < kMagic.size())
      throw DataError("{}: {} bytes are too few for a token file, whose header alone has {}", path, bytes.size(),
                      sizeof(Header));
    std::string text = looks_like_text(bytes) ? "; it looks like text: `chiron prepare` makes tokens of it" : "";
    throw DataError("{}: not a token file: it begins with '{}', expected '{}'{}", path, shown(bytes), kMagic, text);
  }
  if (bytes.size() < sizeof(Header))
    throw DataError("{}: truncated: {} bytes, but the header alone has {}", path, bytes.size(), sizeof(Header));
  Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.version != kVersion)
    throw DataError("{}: version {} of the token format at byte 8; this program reads version {}", path, h.version,
                    kVersion);
  if (h.check != check_of(h)) throw DataError("{}: the header (bytes 0 to 255) is damaged: its checksum differs", path);
  info_ = {h.tokens,
           h.text_bytes,
           h.vocab_size,
           h.documents,
           text_of(h.vocabulary_hash, sizeof h.vocabulary_hash),
           text_of(h.tokenizer, sizeof h.tokenizer),
           {h.checksum_high, h.checksum_low}};
  constexpr int64_t kMostIds = 1 << 24, kMost = int64_t{1} << 56;
  if (h.vocab_size < 1 || h.vocab_size > kMostIds || h.token_bytes != info_.token_bytes() || h.tokens < 0 ||
      h.tokens > kMost || h.documents < 0 || h.documents > h.tokens || h.text_bytes < 0)
    throw DataError("{}: the header makes no sense: {} tokens of {} bytes, vocabulary {}, {} documents", path, h.tokens,
                    h.token_bytes, h.vocab_size, h.documents);
  if (file_.size() != info_.file_bytes())
    throw DataError("{}: {}: {} bytes found, but {} tokens of {} bytes and {} document starts make {}", path,
                    file_.size() < info_.file_bytes() ? "truncated" : "too long", file_.size(), h.tokens, h.token_bytes,
                    h.documents, info_.file_bytes());
  int64_t last = -1, number = 0;
  Block memory;
  for (int64_t block = 0; block * kBlock < h.documents; ++block) {
    const auto starts = read_starts(block, memory);
    block_starts_.push_back(starts[0]);
    for (int64_t start : starts) {
      if (start <= last || start >= h.tokens)
        throw DataError("{}: document {} begins at token {}, which is out of order or not in the file's {} tokens",
                        path, number, start, h.tokens);
      last = start;
      ++number;
    }
  }
}

std::span<const int64_t> TokenFile::read_starts(int64_t block, Block& memory) const {
  const int64_t left = info_.documents - block * kBlock;
  auto starts = std::span(memory).first(static_cast<size_t>(std::min(kBlock, left)));
  file_.read(file_.size() - left * 8, starts.data(), starts.size_bytes());
  return starts;
}

int64_t TokenFile::next_start(int64_t token) const {
  auto next = std::upper_bound(block_starts_.begin(), block_starts_.end(), token);
  if (next != block_starts_.begin()) {
    Block memory;
    const auto starts = read_starts(next - block_starts_.begin() - 1, memory);
    if (auto it = std::upper_bound(starts.begin(), starts.end(), token); it != starts.end()) return *it;
  }
  return next == block_starts_.end() ? info_.tokens : *next;
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= info_.tokens);
  // Narrow ids go to the end of `out`'s memory: widened from the front on, none is overwritten before its turn.
  const auto width = static_cast<size_t>(info_.token_bytes());
  std::byte* raw = std::as_writable_bytes(out).data() + out.size() * (sizeof(int32_t) - width);
  file_.read(static_cast<int64_t>(sizeof(Header) + static_cast<size_t>(begin) * width), raw, out.size() * width);
  if (width == 2)
    widen<uint16_t>(raw, info_.vocab_size, out, path(), begin);
  else
    widen<uint32_t>(raw, info_.vocab_size, out, path(), begin);
}

void TokenFile::verify() const {
  const Hash128 found = file_.hash(sizeof(Header));
  if (found != info_.checksum)
    throw DataError("{}: damaged: the checksum of its tokens is {}, expected {}", path(), found.hex(),
                    info_.checksum.hex());
}

}  // namespace chiron
