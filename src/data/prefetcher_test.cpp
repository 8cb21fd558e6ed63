#include "data/prefetcher.h"

#include <chrono>

#include "data/synthetic.h"
#include "data/testing.h"

namespace chiron {
namespace {

using test::counting_source;

LoaderOptions small() { return {.sequences = 2, .length = 8, .micros = 2, .seed = 3}; }

void expect_step(const Loader& loader, const HostStep& got, int64_t step) {
  HostStep expected;
  loader.fill(step, expected);
  ASSERT_EQ(got.step, step);
  for (size_t m = 0; m < expected.micros.size(); ++m) ASSERT_EQ(got.micros[m].tokens, expected.micros[m].tokens);
}

TEST(Prefetcher, HandsOutStepsInOrder) {
  Loader loader(counting_source(1000), small());
  for (int64_t ahead : {1, 2, 5}) {
    Prefetcher prefetcher(loader, 7, ahead);
    for (int64_t step = 7; step < 200; ++step) expect_step(loader, prefetcher.at(step), step);
    EXPECT_GE(prefetcher.seconds_waited(), 0.0);
  }
}

TEST(Prefetcher, GoesAnywhere) {
  Loader loader(counting_source(1000), small());
  Prefetcher prefetcher(loader);
  for (int64_t step : {0, 1, 1, 5, 6, 2, 3, 1'000'000'000, 1'000'000'001, 0, 2, 1, 2, 3})
    expect_step(loader, prefetcher.at(step), step);
}

TEST(Prefetcher, TheStepInUseIsLeftAlone) {
  Loader loader(counting_source(1000), small());
  Prefetcher prefetcher(loader);
  for (int64_t step = 0; step < 20; ++step) {
    const HostStep& held = prefetcher.at(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // time to fill the next ones
    expect_step(loader, held, step);
  }
}

TEST(Prefetcher, StopsAtAnyMoment) {
  Loader loader(counting_source(1000), small());
  for (int i = 0; i < 50; ++i) {
    Prefetcher prefetcher(loader, i, 3);
    if (i % 2) prefetcher.at(i);
  }
}

TEST(Prefetcher, EndsWithTheLoader) {
  LoaderOptions options = small();
  options.shuffle = false;
  options.once = true;
  Loader loader(counting_source(70), options);  // 9 samples, 4 a step
  ASSERT_EQ(loader.num_steps(), 3);
  Prefetcher prefetcher(loader, 0, 8);
  for (int64_t step = 0; step < 3; ++step) expect_step(loader, prefetcher.at(step), step);
  EXPECT_THROW(prefetcher.at(3), Bug);
}

/// Fails beyond a token.
class Broken final : public TokenSource {
 public:
  std::string name() const override { return "broken"; }
  int64_t num_tokens() const override { return 1000; }
  int64_t vocab_size() const override { return 1; }
  int64_t text_bytes() const override { return 0; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    if (begin >= 320) throw DataError("broken at {}", begin);
    std::fill(out.begin(), out.end(), 0);
  }
  int64_t next_document(int64_t) const override { return 1000; }
};

TEST(Prefetcher, ErrorsReachTheCallerAtTheirStep) {
  LoaderOptions options = small();
  options.shuffle = false;
  Loader loader(std::make_shared<Broken>(), options);  // 32 tokens a step: step 10 fails
  Prefetcher prefetcher(loader, 0, 4);
  for (int64_t step = 0; step < 10; ++step) EXPECT_EQ(prefetcher.at(step).step, step);
  EXPECT_THROW(prefetcher.at(10), DataError);
  EXPECT_THROW(prefetcher.at(10), DataError);
  EXPECT_THROW(prefetcher.at(12), DataError);
  EXPECT_EQ(prefetcher.at(5).step, 5);
  EXPECT_EQ(prefetcher.at(6).step, 6);
}

/// Takes its time.
class Slow final : public TokenSource {
 public:
  std::string name() const override { return "slow"; }
  int64_t num_tokens() const override { return 1000; }
  int64_t vocab_size() const override { return 1; }
  int64_t text_bytes() const override { return 0; }
  void read(int64_t, std::span<int32_t> out) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::fill(out.begin(), out.end(), 0);
  }
  int64_t next_document(int64_t) const override { return 1000; }
};

TEST(Prefetcher, CountsTheSecondsOfWaiting) {
  Loader loader(std::make_shared<Slow>(), {.length = 8});
  Prefetcher prefetcher(loader);
  for (int64_t step = 0; step < 10; ++step) prefetcher.at(step);
  EXPECT_GT(prefetcher.seconds_waited(), 0.030);
  double before = prefetcher.seconds_waited();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  prefetcher.at(10);
  EXPECT_LT(prefetcher.seconds_waited() - before, 0.004) << "it was ready";
}

}  // namespace
}  // namespace chiron
