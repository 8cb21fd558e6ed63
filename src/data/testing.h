#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/token_source.h"

/// What the tests of src/data share.
namespace chiron::test {

/// Tokens in memory; documents begin where it is said.
class VectorSource final : public TokenSource {
 public:
  explicit VectorSource(std::vector<int32_t> tokens, int64_t vocab_size = 1 << 20, std::vector<int64_t> starts = {0})
      : tokens_(std::move(tokens)), vocab_size_(vocab_size), starts_(std::move(starts)) {}
  std::string name() const override { return "folder/of/tokens"; }
  int64_t num_tokens() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t text_bytes() const override { return 0; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= num_tokens());
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  int64_t next_document(int64_t token) const override {
    CHECK(token >= 0 && token < num_tokens());
    auto it = std::upper_bound(starts_.begin(), starts_.end(), token);
    return it == starts_.end() ? num_tokens() : *it;
  }

 private:
  std::vector<int32_t> tokens_;
  int64_t vocab_size_;
  std::vector<int64_t> starts_;
};

/// Token i is i.
inline std::shared_ptr<const TokenSource> counting_source(int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return std::make_shared<VectorSource>(std::move(tokens), std::max<int64_t>(n, 1));
}

template <class E>
void expect_error(const std::function<void()>& f, std::initializer_list<std::string> parts) {
  try {
    f();
    FAIL() << "no error";
  } catch (const E& e) {
    for (const std::string& part : parts) EXPECT_THAT(e.what(), ::testing::HasSubstr(part));
  }
}

inline void expect_data_error(const std::function<void()>& f, std::initializer_list<std::string> parts) {
  expect_error<DataError>(f, parts);
}

}  // namespace chiron::test
