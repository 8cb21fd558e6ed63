#include "core/stream.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/device_testing.h"

namespace chiron {
namespace {

TEST(Stream, RangesDependOnSizeAndGrainAlone) {
  std::set<std::pair<int64_t, int64_t>> want;
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    Stream s({}, pool);
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> got;
    s.parallel(103, 10, [&](int64_t begin, int64_t end) {
      std::lock_guard lock(mutex);
      got.insert({begin, end});
    });
    if (threads == 1) want = got;
    EXPECT_EQ(got, want);
  }
  EXPECT_EQ(want.size(), 11u);
  EXPECT_TRUE(want.contains({100, 103}));
}

TEST(Stream, CopiesAndFills) {
  ThreadPool pool(2);
  Stream s({}, pool);
  std::vector<float> from(3000000), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  auto tensor = [](std::vector<float>& v) {
    return Tensor{reinterpret_cast<uintptr_t>(v.data()), DType::f32, {static_cast<int64_t>(v.size())}};
  };
  s.copy(tensor(to), tensor(from));
  EXPECT_EQ(to, from);
  s.fill_zero(tensor(to));
  EXPECT_EQ(to, std::vector<float>(to.size()));
  EXPECT_THROW(s.copy(tensor(to).slice(0, 10), tensor(from)), Bug);
}

using StreamCopy = OnDevice;
INSTANTIATE_TEST_SUITE_P(Cpu, StreamCopy, testing::Values(kCpu));
INSTANTIATE_TEST_SUITE_P(Gpu, StreamCopy, testing::Values(kGpu));

TEST_P(StreamCopy, BetweenRowsWithGaps) {
  ThreadPool pool(2);
  Stream s(GetParam(), pool);
  std::vector<float> values(60);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const DeviceArray<float> from(s, values), to(s, std::vector<float>(77, -1));
  const Rows in = from.tensor({6, 10}), out = to.tensor({7, 11});
  s.copy(out.slice(1, 7).columns(4, 3), in.columns(2, 3));
  const std::vector<float> got = to.read();
  for (size_t r = 0; r < 7; ++r)
    for (size_t c = 0; c < 11; ++c) {
      const bool inside = r >= 1 && c >= 4 && c < 7;
      EXPECT_EQ(got[r * 11 + c], inside ? values[(r - 1) * 10 + c - 2] : -1) << r << ", " << c;
    }
  EXPECT_THROW(s.copy(out.columns(0, 3), in.columns(0, 3)), Bug);
}

TEST(Stream, ADryStreamRunsNothingButTellsTheTrace) {
  struct Names final : Trace {
    std::vector<std::string> ops;
    void begin(const OpInfo& info) override {
      ops.push_back(std::string(info.name) + (info.outputs.empty() ? "" : " " + info.outputs[0].shape.str()));
    }
    void end(const OpInfo& info) override { ops.push_back(std::string("end ") + info.name); }
  } names;
  Stream s = Stream::dry({});
  s.set_trace(&names);
  s.fill_zero({0x1000, DType::f32, {7}});  // an address that nobody may touch
  EXPECT_EQ(names.ops, (std::vector<std::string>{"fill_zero (7)", "end fill_zero"}));
  EXPECT_THROW(s.parallel(1, 1, [](int64_t, int64_t) {}), Bug);
}

TEST(Stream, AnExceptionInARangeReachesTheCaller) {
  ThreadPool pool(3);
  Stream s({}, pool);
  EXPECT_THROW(s.parallel(100, 1,
                          [](int64_t begin, int64_t) {
                            if (begin == 50) throw Bug("range 50");
                          }),
               Bug);
}

}  // namespace
}  // namespace chiron
