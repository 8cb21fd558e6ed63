#include "data/synthetic.h"

#include <cmath>
#include <map>
#include <random>

#include "data/testing.h"

namespace chiron {
namespace {

std::vector<int32_t> read_all(const SyntheticSource& source) {
  std::vector<int32_t> tokens(static_cast<size_t>(source.num_tokens()));
  source.read(0, tokens);
  return tokens;
}

TEST(Synthetic, IsAPureFunctionOfThePosition) {
  SyntheticSource source({.vocab_size = 50, .num_tokens = 1003, .seed = 4}),
      again({.vocab_size = 50, .num_tokens = 1003, .seed = 4});
  std::vector<int32_t> all = read_all(source);
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    size_t begin = rng() % 1003, n = rng() % (1003 - begin + 1);
    std::vector<int32_t> part(n);
    again.read(static_cast<int64_t>(begin), part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)));
  }
}

TEST(Synthetic, SeedIsTheLanguageAndStreamWhatIsSaid) {
  auto first = read_all(SyntheticSource({.num_tokens = 3200}));
  EXPECT_NE(first, read_all(SyntheticSource({.num_tokens = 3200, .seed = 1})));
  EXPECT_NE(first, read_all(SyntheticSource({.num_tokens = 3200, .stream = 1})));
}

TEST(Synthetic, DocumentsRepeatThemselves) {
  for (int64_t vocab : {8, 9, 256, 70000}) {
    SyntheticSource source({.vocab_size = vocab, .num_tokens = 3200});
    std::vector<int32_t> t = read_all(source);
    for (size_t d = 0; d < t.size(); d += 32) {
      ASSERT_EQ(t[d], vocab - 2);
      ASSERT_EQ(t[d + 16], vocab - 1);
      for (size_t i = 1; i <= 15; ++i) {
        ASSERT_EQ(t[d + i], t[d + 16 + i]);
        ASSERT_GE(t[d + i], 0);
        ASSERT_LT(t[d + i], vocab - 2);
      }
      ASSERT_EQ(source.next_document(static_cast<int64_t>(d) + 5), static_cast<int64_t>(d) + 32);
    }
  }
}

TEST(Synthetic, EntropyIsWhatTheSourceHas) {
  // Both streams speak one language: successors of (parity, word), counted in stream 0, predict stream 1 at the
  // entropy.
  SyntheticOptions options{.vocab_size = 20, .num_tokens = 32 * 40000, .seed = 9};
  std::vector<int32_t> train = read_all(SyntheticSource(options));
  options.stream = 1;
  SyntheticSource source(options);
  std::vector<int32_t> test = read_all(source);
  std::map<std::pair<int, int>, std::map<int, double>> counts;
  auto each = [](const std::vector<int32_t>& t, auto&& f) {
    for (size_t d = 0; d < t.size(); d += 32)
      for (size_t i = 2; i <= 15; ++i) f(std::pair(i == 2 ? 0 : t[d + i - 2] & 1, t[d + i - 1]), t[d + i]);
  };
  each(train, [&](auto context, int next) { ++counts[context][next]; });
  double nats = 0;
  each(test, [&](auto context, int next) {
    double total = 0;
    for (auto& [word, n] : counts[context]) total += n;
    ASSERT_LE(counts[context].size(), 4u);
    nats -= std::log(counts[context][next] / total);
  });
  nats += std::log(18.0) * 40000;
  EXPECT_NEAR(nats / static_cast<double>(test.size()), source.entropy(), 0.002);
}

TEST(Synthetic, OptionsThatCannotBe) {
  test::expect_error<ConfigError>([] { SyntheticSource({.vocab_size = 7}); }, {"at least 8", "7"});
  test::expect_error<ConfigError>([] { SyntheticSource({.num_tokens = 0}); }, {"0"});
}

}  // namespace
}  // namespace chiron
