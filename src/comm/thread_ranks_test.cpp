#include "comm/thread_ranks.h"

#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <thread>

#include "base/error_testing.h"
#include "comm/comm_testing.h"

namespace chiron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

TEST(ThreadRanks, ReductionsAreInRankOrderForEveryTypeAndSize) {
  for (const int n : {1, 2, 3, 4})
    for (const int64_t piece : {0, 64})
      run_thread_ranks(n,
                       [](Communicator& c) {
                         for (const int64_t size : {1, 2, 3, 7, 100, 1000}) {
                           expect_reductions<float>(c, size);
                           expect_reductions<bf16>(c, size);
                           expect_reductions<f16>(c, size);
                           expect_reductions<double>(c, size);
                         }
                       },
                       {.piece_bytes = piece});
}

TEST(ThreadRanks, MovesMessagesAndSplits) {
  for (const int n : {1, 2, 3, 4})
    run_thread_ranks(n, [n](Communicator& c) {
      for (const int64_t size : {1, 5, n == 3 ? 140'000 : 100}) expect_moves(c, size);
      expect_messages(c, 9);
      if (n % 2 == 0) expect_splits(c);
    });
}

TEST(ThreadRanks, IntegersAddUpExactly) {
  run_thread_ranks(3, [](Communicator& c) {
    TestRank t;
    DeviceArray<int32_t> i32(t.s, {c.rank(), 1 << 29, -5});
    DeviceArray<int64_t> i64(t.s, {int64_t{1} << 60});
    DeviceArray<uint8_t> u8(t.s, {uint8_t(c.rank() * 100)});
    c.all_reduce(t.s, i32.tensor(), Reduce::sum);
    c.all_reduce(t.s, i64.tensor(), Reduce::sum);
    c.all_reduce(t.s, u8.tensor(), Reduce::max);
    EXPECT_EQ(i32.read(), (std::vector<int32_t>{3, 3 << 29, -15}));
    EXPECT_EQ(i64.read()[0], int64_t{3} << 60);
    EXPECT_EQ(u8.read()[0], 200);
    EXPECT_THROW(c.all_reduce(t.s, i32.tensor(), Reduce::average), Bug);
    EXPECT_THROW(c.all_reduce(t.s, Tensor{i32.tensor().at, DType::u16, {1}}, Reduce::sum), Bug);
  });
}

TEST(ThreadRanks, NotANumberReachesEveryRankWhicheverHasIt) {
  for (int who = 0; who < 3; ++who)
    run_thread_ranks(3, [who](Communicator& c) {
      TestRank t;
      DeviceArray<float> x(t.s, {c.rank() == who ? std::numeric_limits<float>::quiet_NaN() : 1.0f});
      c.all_reduce(t.s, x.tensor(), Reduce::max);
      EXPECT_TRUE(std::isnan(x.read()[0]));
    });
}

TEST(ThreadRanks, AnAllReduceMovesTwiceTheShareOfTheOthers) {
  for (const int n : {2, 4, 8})
    run_thread_ranks(n, [n](Communicator& c) {
      TestRank t;
      constexpr int64_t kElements = 1 << 12;
      DeviceArray<float> x(t.s, test_values(c.rank(), kElements));
      const int64_t bytes = kElements * 4, before = c.bytes_received();
      c.all_reduce(t.s, x.tensor(), Reduce::sum);
      EXPECT_EQ(c.bytes_received() - before, 2 * (n - 1) * bytes / n);
      const int64_t then = c.bytes_received();
      c.reduce_scatter(t.s, x.tensor().slice(0, kElements / n), DeviceArray<float>(t.s, x.read()).tensor(),
                       Reduce::sum);
      EXPECT_EQ(c.bytes_received() - then, (n - 1) * bytes / n);
    });
}

struct Ops : Trace {
  std::vector<std::string> seen;
  void begin(const OpInfo& info) override {
    seen.emplace_back(info.name);
    for (const Operand& o : info.inputs) seen.back() += " " + std::to_string(o.bytes());
  }
  void end(const OpInfo&) override {}
};

TEST(ThreadRanks, ATraceSeesCollectivesOfRunningAndOfDryStreams) {
  run_thread_ranks(2, [](Communicator& c) {
    TestRank t;
    auto dp = c.split(0, 0, "dp");
    Ops ops;
    t.s.set_trace(&ops);
    DeviceArray<float> x(t.s, {1, 2, 3});
    dp->all_reduce(t.s, x.tensor(), Reduce::sum);
    dp->barrier(t.s);
    EXPECT_THAT(ops.seen, testing::ElementsAre("all_reduce dp 12", HasSubstr("barrier dp")));
  });
  PlannedCommunicator planned(1000, 7, "dp");
  Stream dry = Stream::dry({});
  Ops ops;
  dry.set_trace(&ops);
  const Tensor all{256, DType::bf16, {1000, 2}}, part{256, DType::bf16, {2}};
  planned.all_gather(dry, all, part);
  planned.wait_sent(dry, planned.send(dry, part, 8));
  planned.receive(dry, part, 8);
  EXPECT_THAT(ops.seen, testing::ElementsAre("all_gather dp 4", "send dp 4", "receive dp"));
  EXPECT_THROW(planned.all_gather(dry, all, all), Bug);
  EXPECT_THROW(planned.broadcast(dry, all, 1000), Bug);
}

TEST(ThreadRanks, AGroupOfOneMovesNothing) {
  SelfCommunicator self;
  TestRank t;
  Ops ops;
  t.s.set_trace(&ops);
  DeviceArray<float> x(t.s, {1, 2}), y(t.s, {0, 0});
  self.all_reduce(t.s, x.tensor(), Reduce::average);
  self.all_gather(t.s, x.tensor(), x.tensor());
  self.barrier(t.s);
  EXPECT_TRUE(ops.seen.empty());
  self.reduce_scatter(t.s, y.tensor(), x.tensor(), Reduce::sum);
  EXPECT_EQ(y.read(), x.read());
  EXPECT_EQ(self.split(3, 0, "tp")->name(), "tp");
  EXPECT_EQ(self.split(-1, 0, "tp"), nullptr);
}

/// f on 3 ranks with a short time-out. What the ranks were told is kept.
std::string failing(const std::function<void(Communicator&, Stream&, Tensor)>& f, int timeout_ms = 20'000) {
  std::atomic<int> told = 0;
  const std::string first = message_of<Error>([&] {
    run_thread_ranks(3,
                     [&](Communicator& c) {
                       TestRank t;
                       DeviceArray<float> x(t.s, std::vector<float>(12, 1.0f));
                       try {
                         c.barrier(t.s);  // a slow rank may hear of a quick one's end while it leaves
                         f(c, t.s, x.tensor());
                       } catch (const CommError&) {
                         ++told;
                         throw;
                       }
                     },
                     {.timeout = milliseconds(timeout_ms)});
  });
  EXPECT_GE(told, 2) << first;
  return first;
}

TEST(ThreadRanks, ARankThatThrowsEndsAllAndIsTheOneThatIsHeard) {
  EXPECT_EQ(failing([](Communicator& c, Stream& s, Tensor t) {
              if (c.rank() == 1) throw DataError("tokens.bin is broken");
              c.all_reduce(s, t, Reduce::sum);
              c.all_reduce(s, t, Reduce::sum);
            }),
            "tokens.bin is broken");
}

TEST(ThreadRanks, ARankThatEndsEarlyIsNamed) {
  EXPECT_THAT(failing([](Communicator& c, Stream& s, Tensor t) {
                if (c.rank() != 1) c.all_reduce(s, t, Reduce::sum);
              }),
              AllOf(HasSubstr("rank 1 (its last call: barrier #1 in the group world) has ended"),
                    HasSubstr("all_reduce #2 of f32 x 12 (sum) in the group world of rank ")));
}

TEST(ThreadRanks, RanksThatDivergeAreBothNamed) {
  EXPECT_THAT(failing([](Communicator& c, Stream& s, Tensor t) {
                c.all_reduce(s, t, c.rank() == 2 ? Reduce::max : Reduce::sum);
              }),
              AllOf(HasSubstr("ranks make different calls"), HasSubstr("all_reduce #2 of f32 x 12 (max)"),
                    HasSubstr("all_reduce #2 of f32 x 12 (sum)"), HasSubstr("rank 2 ")));
  EXPECT_THAT(failing([](Communicator& c, Stream& s, Tensor t) {
                if (c.rank() == 0)
                  c.broadcast(s, t, 0);
                else
                  c.all_reduce(s, t, Reduce::sum);
              }),
              AllOf(HasSubstr("broadcast #2 of f32 x 12 with root 0"), HasSubstr("all_reduce #2")));
  EXPECT_THAT(failing([](Communicator& c, Stream& s, Tensor t) {
                c.all_reduce(s, c.rank() == 0 ? t.slice(0, 3) : t, Reduce::sum);
              }),
              AllOf(HasSubstr("f32 x 3"), HasSubstr("f32 x 12")));
  EXPECT_THAT(failing([](Communicator& c, Stream& s, Tensor t) {
                if (c.rank() == 0) c.wait_sent(s, c.send(s, t, 1));
                if (c.rank() == 1) c.receive(s, t.slice(0, 3), 0);
                c.barrier(s);
              }),
              AllOf(HasSubstr("rank 1 does receive #1 of f32 x 3"), HasSubstr("rank 0 did send #1 of f32 x 12")));
}

TEST(ThreadRanks, ARankThatHangsIsNamedWithinTheTimeOut) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> waiting = 2;
  EXPECT_THAT(failing(
                  [&](Communicator& c, Stream& s, Tensor t) {
                    if (c.rank() == 2)
                      while (waiting > 0) std::this_thread::sleep_for(milliseconds(1));
                    try {
                      c.all_reduce(s, t, Reduce::sum);
                    } catch (const CommError& e) {
                      EXPECT_THAT(e.what(), HasSubstr("rank 2 (its last call: barrier #1 in the group world)"));
                      --waiting;
                      throw;
                    }
                  },
                  200),
              AllOf(HasSubstr("all_reduce #2"), HasSubstr("has waited 200 ms for rank 2")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(ThreadRanks, AGroupThatWaitsForAnotherGroupIsTold) {
  EXPECT_THAT(failing([](Communicator& c, Stream& s, Tensor t) {
                auto pair = c.split(c.rank() < 2 ? 0 : 1, 0, "pair");
                if (c.rank() == 2) throw DataError("nothing to read");
                pair->barrier(s);
                c.all_reduce(s, t, Reduce::sum);
              }),
              HasSubstr("nothing to read"));
}

TEST(ThreadRanks, AMessageThatNobodyTakesIsAnError) {
  EXPECT_THAT(message_of<CommError>([] {
                run_thread_ranks(2, [](Communicator& c) {
                  TestRank t;
                  DeviceArray<float> x(t.s, {1.0f});
                  if (c.rank() == 0) c.send(t.s, x.tensor(), 1);
                });
              }),
              AllOf(HasSubstr("rank 1 (it made no call) has ended"), HasSubstr("send #1 of f32 x 1")));
}

TEST(ThreadRanks, TheLastCallsAreKept) {
  run_thread_ranks(2, [](Communicator& c) {
    TestRank t;
    DeviceArray<float> x(t.s, {1.0f});
    for (int i = 0; i < 50; ++i) c.all_reduce(t.s, x.tensor(), Reduce::sum);
    c.barrier(t.s);
    const std::string text = c.recent_calls();
    EXPECT_TRUE(text.starts_with("  barrier #51 in the group world: done\n  all_reduce #50 of f32 x 1 (sum)")) << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 32);
  });
}

}  // namespace
}  // namespace chiron
