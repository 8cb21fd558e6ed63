#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/communicator.h"
#include "core/device_testing.h"

namespace chiron {

/// A rank of a test: its thread, its stream.
struct TestRank {
  ThreadPool pool{1};
  Stream s{Device{}, pool};
};

/// What rank r holds: numbers whose sums round, so that another order of adding gives other bits.
inline std::vector<float> test_values(int rank, int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(rank) * 1.3f) * (i % 3 == 0 ? 1000.0f : 0.01f);
  return v;
}

/// The values that a collective must give, from plain loops in rank order.
template <class T>
std::vector<T> summed(int ranks, int64_t n, Reduce how) {
  std::vector<std::vector<float>> values;
  for (int r = 0; r < ranks; ++r) values.push_back(test_values(r, n));
  std::vector<T> out;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    Acc<T> sum = 0;
    for (int r = 0; r < ranks; ++r) {
      const Acc<T> x = static_cast<Acc<T>>(static_cast<T>(values[static_cast<size_t>(r)][i]));
      sum = r == 0 ? x : how == Reduce::max ? std::max(sum, x) : sum + x;
    }
    out.push_back(static_cast<T>(how == Reduce::average ? sum / static_cast<Acc<T>>(ranks) : sum));
  }
  return out;
}

template <class T>
std::vector<T> cast_values(const std::vector<float>& v) {
  std::vector<T> out;
  for (float x : v) out.push_back(static_cast<T>(x));
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void expect_reductions(Communicator& c, int64_t n) {
  TestRank t;
  for (const Reduce how : {Reduce::sum, Reduce::average, Reduce::max}) {
    const auto want = summed<T>(c.size(), n, how), mine = cast_values<T>(test_values(c.rank(), n));
    DeviceArray<T> all(t.s, mine);
    c.all_reduce(t.s, all.tensor(), how);
    EXPECT_TRUE(same_bits(all.read(), want)) << "all_reduce of " << n;

    const int root = c.size() - 1;
    DeviceArray<T> one(t.s, mine);
    c.reduce(t.s, one.tensor(), how, root);
    EXPECT_TRUE(same_bits(one.read(), c.rank() == root ? want : mine)) << "reduce of " << n;

    const int64_t part = n / c.size();
    if (part == 0) continue;
    const auto cut = summed<T>(c.size(), part * c.size(), how);
    const std::vector<T> share(cut.begin() + part * c.rank(), cut.begin() + part * (c.rank() + 1));
    DeviceArray<T> from(t.s, cast_values<T>(test_values(c.rank(), part * c.size()))), to(t.s, std::vector<T>(part));
    c.reduce_scatter(t.s, to.tensor(), from.tensor(), how);
    EXPECT_TRUE(same_bits(to.read(), share)) << "reduce_scatter of " << n;
    const Tensor place = from.tensor().slice(part * c.rank(), part * (c.rank() + 1));
    c.reduce_scatter(t.s, place, from.tensor(), how);
    t.s.download(to.data(), place);
    EXPECT_TRUE(same_bits(to.read(), share)) << "reduce_scatter in place of " << n;
  }
}

/// What only moves: whole numbers that say where they come from.
inline void expect_moves(Communicator& c, int64_t n) {
  TestRank t;
  const int size = c.size(), rank = c.rank();
  auto numbers = [&](int from, int64_t count) {
    std::vector<int64_t> v(static_cast<size_t>(count));
    std::iota(v.begin(), v.end(), int64_t{1'000'000} * from);
    return v;
  };
  std::vector<int64_t> all;
  for (int k = 0; k < size; ++k)
    for (int64_t x : numbers(k, n)) all.push_back(x);

  DeviceArray<int64_t> part(t.s, numbers(rank, n)), gathered(t.s, std::vector<int64_t>(all.size()));
  c.all_gather(t.s, gathered.tensor(), part.tensor());
  EXPECT_EQ(gathered.read(), all);
  std::vector<int64_t> mine(all.size(), -1);
  std::copy_n(all.begin() + n * rank, n, mine.begin() + n * rank);
  gathered.write(mine);
  c.all_gather(t.s, gathered.tensor(), gathered.tensor().slice(n * rank, n * (rank + 1)));
  EXPECT_EQ(gathered.read(), all);

  for (int root = 0; root < size; ++root) {
    part.write(numbers(rank, n));
    c.broadcast(t.s, part.tensor(), root);
    EXPECT_EQ(part.read(), numbers(root, n));
  }

  DeviceArray<int64_t> in(t.s, numbers(rank, n * size)), out(t.s, std::vector<int64_t>(all.size()));
  c.all_to_all(t.s, out.tensor(), in.tensor());
  std::vector<int64_t> want;
  for (int k = 0; k < size; ++k)
    for (int64_t i = 0; i < n; ++i) want.push_back(1'000'000 * k + n * rank + i);
  EXPECT_EQ(out.read(), want);
  c.barrier(t.s);
}

/// Every rank sends to every other before it takes anything.
inline void expect_messages(Communicator& c, int64_t n) {
  TestRank t;
  constexpr int kMessages = 3;
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> sent;
  int64_t ticket = 0;
  for (int m = 0; m < kMessages; ++m)
    for (int k = 0; k < c.size(); ++k) {
      if (k == c.rank()) continue;
      sent.push_back(std::make_unique<DeviceArray<int64_t>>(
          t.s, std::vector<int64_t>(static_cast<size_t>(n + m), 100 * c.rank() + 10 * k + m)));
      const int64_t next = c.send(t.s, sent.back()->tensor(), k);
      EXPECT_GT(next, ticket);
      ticket = next;
    }
  for (int k = 0; k < c.size(); ++k)
    for (int m = 0; m < kMessages && k != c.rank(); ++m) {
      DeviceArray<int64_t> taken(t.s, std::vector<int64_t>(static_cast<size_t>(n + m)));
      c.receive(t.s, taken.tensor(), k);
      EXPECT_EQ(taken.read(), std::vector<int64_t>(static_cast<size_t>(n + m), 100 * k + 10 * c.rank() + m));
    }
  c.wait_sent(t.s, ticket);
}

/// Rows and columns of a grid as groups; ranks reversed by key.
inline void expect_splits(Communicator& c) {
  TestRank t;
  const int half = c.size() / 2;
  auto rows = c.split(c.rank() / half, -c.rank(), "rows");
  auto columns = c.split(c.rank() % half, 0, "columns");
  ASSERT_EQ(rows->size(), half);
  ASSERT_EQ(columns->size(), 2);
  EXPECT_EQ(rows->rank(), half - 1 - c.rank() % half);
  EXPECT_EQ(columns->rank(), c.rank() / half);
  DeviceArray<int32_t> x(t.s, {c.rank()}), y(t.s, {c.rank()});
  rows->all_reduce(t.s, x.tensor(), Reduce::sum);
  columns->all_reduce(t.s, y.tensor(), Reduce::sum);
  const int first = c.rank() / half * half;
  EXPECT_EQ(x.read()[0], half * first + half * (half - 1) / 2);
  EXPECT_EQ(y.read()[0], 2 * (c.rank() % half) + half);
  auto none = c.split(c.rank() == 0 ? -1 : 0, 0, "others");
  EXPECT_EQ(none == nullptr, c.rank() == 0);
  if (none) {
    EXPECT_EQ(none->size(), c.size() - 1);
  }
}

}  // namespace chiron
