#include "core/graph.h"

#include <gmock/gmock.h>

#include <optional>

#include "base/error_testing.h"
#include "core/gpu_testing.h"
#include "core/staging.h"

namespace chiron {
namespace {

using testing::HasSubstr;

std::vector<float> counted(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

std::vector<float> contents(Stream& s, View v) {
  std::vector<float> values(static_cast<size_t>(v.numel()));
  s.download(values.data(), v);
  return values;
}

struct GpuStream : testing::Test {
  void SetUp() override {
    if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    s.emplace(kGpu, pool);
    stack.emplace(kGpu, 1 << 20);
  }
  ThreadPool pool{1};
  std::optional<Stream> s;
  std::optional<Stack> stack;
};

TEST_F(GpuStream, CopiesRowsWithGaps) {
  const Tensor wide = stack->push(DType::f32, {7, 5}), narrow = stack->push(DType::f32, {7, 2});
  s->upload(wide, counted(35).data());
  s->copy(narrow, Rows(wide).columns(3, 2));
  const auto got = contents(*s, narrow);
  for (size_t r = 0; r < 7; ++r)
    for (size_t c = 0; c < 2; ++c) EXPECT_EQ(got[2 * r + c], static_cast<float>(5 * r + 3 + c));
}

using GpuGraph = GpuStream;

TEST_F(GpuGraph, RunsLaterWhatItWasGiven) {
  const Tensor a = stack->push(DType::f32, {9}), b = stack->push(DType::f32, {9});
  s->upload(a, counted(9).data());
  s->fill_zero(b);
  Graph graph;
  EXPECT_TRUE(graph.empty());
  graph.capture(*s, [&] {
    s->copy(b, a);
    s->fill_zero(a);
  });
  EXPECT_EQ(contents(*s, b), std::vector<float>(9)) << "nothing runs while it is written down";
  graph.launch(*s, "a graph");
  EXPECT_EQ(contents(*s, b), counted(9));
  EXPECT_EQ(contents(*s, a), std::vector<float>(9));
  graph.launch(*s, "a graph");
  EXPECT_EQ(contents(*s, b), std::vector<float>(9));
  EXPECT_EQ(s->op_text(), "a graph");
}

TEST_F(GpuGraph, AnErrorEndsTheCapture) {
  const Tensor a = stack->push(DType::f32, {9});
  Graph graph;
  EXPECT_THROW(graph.capture(*s,
                             [&] {
                               s->fill_zero(a);
                               throw DataError("while capturing");
                             }),
               DataError);
  EXPECT_TRUE(graph.empty());
  s->upload(a, counted(9).data());
  EXPECT_EQ(contents(*s, a), counted(9)) << "the stream runs again";
}

TEST_F(GpuGraph, AFailedLaunchIsNamed) {
  const Tensor a = stack->push(DType::f32, {9});
  Graph graph;
  graph.capture(*s, [&] { s->fill_zero(a); });
  {
    const FailedLaunch fault(1, "an injected fault", true);
    EXPECT_THAT(message_of<DeviceError>([&] { graph.launch(*s, "the graph of a test"); }),
                HasSubstr("the graph of a test: launching a graph failed: an injected fault"));
    EXPECT_THROW(s->sync(), DeviceError) << "it is lost";
  }
  s->sync();
}

using GpuStaging = GpuStream;

TEST_F(GpuStaging, GoesBlockByBlock) {
  constexpr int64_t kRows = 11000, kCols = 1031;  // 45 MB
  const Buffer memory(kGpu, kRows * kCols * 4);
  const Tensor t{memory.at(), DType::f32, {kRows, kCols}};
  const Staging staging(*s);
  int blocks = 0;
  staging.write(t, [&](Tensor host, int64_t first) {
    ++blocks;
    for (int64_t i = 0; i < host.numel(); ++i) host.data<float>()[i] = static_cast<float>(first * kCols + i);
  });
  EXPECT_EQ(blocks, 2);
  int64_t wrong = 0, next = 0;
  staging.read(t, [&](View host, int64_t first) {
    EXPECT_EQ(first, next);
    next += host.shape[0];
    for (int64_t i = 0; i < host.numel(); ++i) wrong += host.data<float>()[i] != static_cast<float>(first * kCols + i);
  });
  EXPECT_EQ(next, kRows);
  EXPECT_EQ(wrong, 0);
  Rows held[2] = {t.slice(3, 5), t.slice(9, 10)};
  staging.hold(held);
  EXPECT_EQ(held[0].data<float>()[1], 3 * kCols + 1);
  EXPECT_EQ(held[1].data<float>()[0], 9 * kCols);
}

TEST(Staging, LeavesTheCpusMemoryWhereItIs) {
  std::vector<float> values = counted(6);
  const Tensor t{reinterpret_cast<uintptr_t>(values.data()), DType::f32, {3, 2}};
  const Staging staging;
  staging.write(t, [&](Tensor host, int64_t first) {
    EXPECT_EQ(host.at, t.at);
    EXPECT_EQ(first, 0);
  });
  Rows rows = t;
  staging.hold(std::span(&rows, 1));
  EXPECT_EQ(rows.at, t.at);
}

}  // namespace
}  // namespace chiron
