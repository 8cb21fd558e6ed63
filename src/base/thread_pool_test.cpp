#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/error.h"

namespace chiron {
namespace {

TEST(ThreadPool, RunsEachPartOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t parts : {0, 1, 2, 7, 1000}) {
      std::vector<int> counts(static_cast<size_t>(parts));
      pool.run(
          parts, [](void* context, int64_t i) { ++(*static_cast<std::vector<int>*>(context))[static_cast<size_t>(i)]; },
          &counts);
      EXPECT_EQ(counts, std::vector<int>(static_cast<size_t>(parts), 1));
    }
  }
}

TEST(ThreadPool, WhatAJobWroteIsSeenByTheNext) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64);
  auto add = [](void* context, int64_t i) {
    auto& v = *static_cast<std::vector<int64_t>*>(context);
    // Reads what another thread may have written in the job before.
    v[static_cast<size_t>(i)] = v[static_cast<size_t>(63 - i)] + 1;
  };
  // A part must not read what its own job writes: parts of one half only.
  for (int round = 0; round < 200; ++round) pool.run(32, add, &values);
  EXPECT_EQ(values[0], 1);
  struct Sum {
    std::vector<int64_t>* from;
    std::atomic<int64_t> total = 0;
  } sum{&values};
  pool.run(
      64,
      [](void* context, int64_t i) {
        auto& s = *static_cast<Sum*>(context);
        s.total += (*s.from)[static_cast<size_t>(i)];
      },
      &sum);
  EXPECT_EQ(sum.total.load(), std::accumulate(values.begin(), values.end(), int64_t{0}));
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    auto fail = [](void*, int64_t i) {
      if (i == 3) throw std::runtime_error("part 3");
    };
    EXPECT_THROW(pool.run(10, fail, nullptr), std::runtime_error);
    std::atomic<int> parts = 0;
    pool.run(
        10, [](void* context, int64_t) { ++*static_cast<std::atomic<int>*>(context); }, &parts);
    EXPECT_EQ(parts.load(), 10);
  }
}

TEST(ThreadPool, ManyPoolsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    std::atomic<int64_t> sum = 0;
    pool.run(
        8, [](void* context, int64_t part) { *static_cast<std::atomic<int64_t>*>(context) += part; }, &sum);
    EXPECT_EQ(sum.load(), 28);
  }
}

}  // namespace
}  // namespace chiron
