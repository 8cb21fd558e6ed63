#include "data/joined_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace chiron {

JoinedSource::JoinedSource(std::vector<std::shared_ptr<const TokenSource>> parts) : parts_(std::move(parts)) {
  CHECK(!parts_.empty());
  begins_.push_back(0);
  for (const auto& part : parts_) begins_.push_back(begins_.back() + part->num_tokens());
}

std::string JoinedSource::name() const {
  std::string name = parts_.front()->name();
  for (size_t i = 1; i < parts_.size(); ++i) name += ", " + parts_[i]->name();
  return name;
}

int64_t JoinedSource::text_bytes() const {
  int64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->text_bytes();
  return bytes;
}

std::string JoinedSource::fingerprint() const {
  std::string all;
  for (const auto& part : parts_) all += part->fingerprint() + "\n";
  return hash128(all).hex();
}

size_t JoinedSource::part_of(int64_t token) const {
  // The last part that begins at or before the token, so that empty parts are passed over.
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end() - 1, token) - begins_.begin()) - 1;
}

void JoinedSource::read(int64_t begin, std::span<int32_t> out) const {
  while (!out.empty()) {
    const size_t p = part_of(begin);
    const auto n = std::min(static_cast<int64_t>(out.size()), begins_[p + 1] - begin);
    parts_[p]->read(begin - begins_[p], out.first(static_cast<size_t>(n)));
    out = out.subspan(static_cast<size_t>(n));
    begin += n;
  }
}

int64_t JoinedSource::next_document(int64_t token) const {
  // A part begins a document, so the end of one is the start of another, or the end of all.
  const size_t p = part_of(token);
  return begins_[p] + parts_[p]->next_document(token - begins_[p]);
}

}  // namespace chiron
