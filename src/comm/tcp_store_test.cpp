#include "comm/tcp_store.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/error_testing.h"
#include "comm/tcp_socket.h"

namespace chiron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// A port that was free just now.
int free_port() { return port_of(*listen_at("127.0.0.1", 0)); }

StoreOptions options(int rank, int world, int port) {
  return {.address = "127.0.0.1",
          .port = port,
          .rank = rank,
          .world = world,
          .job = "test",
          .timeout = milliseconds(10'000),
          .identity = {{"build", "0.1.0"}, {"GPU vendor", "none"}, {"configuration", "abc"}},
          .host = "host" + std::to_string(rank)};
}

/// Runs f on a thread for each set of options; what each threw, or "no error".
std::vector<std::string> on_threads(const std::vector<StoreOptions>& all,
                                    const std::function<void(TcpStore&, int rank)>& f) {
  std::vector<std::string> said(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      said[i] = message_of<Error>([&] {
        TcpStore store(all[i]);
        f(store, all[i].rank);
        store.leave();
      });
    });
  for (std::thread& t : threads) t.join();
  return said;
}

std::vector<StoreOptions> ranks(int world, const std::function<void(StoreOptions&)>& change = {}) {
  std::vector<StoreOptions> all;
  const int port = free_port();
  for (int k = 0; k < world; ++k) {
    all.push_back(options(k, world, port));
    if (change) change(all.back());
  }
  return all;
}

TEST(TcpStore, CarriesValuesNumbersAndBarriers) {
  std::atomic<int> there = 0;
  auto all = ranks(4);
  all[2].note = "note of 2";
  const auto said = on_threads(all, [&](TcpStore& store, int rank) {
    EXPECT_EQ(store.members().size(), 4u);
    EXPECT_THAT(store.members()[2], HasSubstr("host2 pid "));
    EXPECT_EQ(store.notes(), (std::vector<std::string>{"", "", "note of 2", ""}));
    if (rank == 3) store.set("name", std::string("a\0b\n", 4));
    store.wait("name");
    EXPECT_EQ(store.get("name"), std::string("a\0b\n", 4));
    store.add("count", rank + 1);
    for (int round = 1; round <= 3; ++round) {
      ++there;
      store.barrier("b");
      EXPECT_GE(there, 4 * round);
    }
    EXPECT_EQ(store.add("count", 0), 10);
    store.set("big", std::string(100'000, 'x'));
    EXPECT_EQ(store.get("big").size(), 100'000u);
    EXPECT_EQ(store.failure(), std::nullopt);
    store.barrier("end");
  });
  EXPECT_THAT(said, testing::Each("no error"));
}

TEST(TcpStore, MissingRanksAreNamed) {
  auto all = ranks(4, [](StoreOptions& o) { o.timeout = milliseconds(300); });
  all.erase(all.begin() + 3);
  all.erase(all.begin() + 1);
  EXPECT_THAT(on_threads(all, [](TcpStore&, int) {}),
              testing::Each(AllOf(HasSubstr("ranks 1 and 3 of 4 did not come to 127.0.0.1:"), HasSubstr("0.3 s"))));
}

TEST(TcpStore, WithoutRankZeroTheAddressIsNamed) {
  auto one = options(1, 2, free_port());
  one.timeout = milliseconds(300);
  EXPECT_THAT(message_of<CommError>([&] { TcpStore store(one); }),
              AllOf(HasSubstr("rank 1 (host1 pid "), HasSubstr("found no rank 0 at 127.0.0.1:"), HasSubstr("refused")));
  one.address = "no.such.host.invalid";
  EXPECT_THAT(message_of<CommError>([&] { TcpStore store(one); }), HasSubstr("no.such.host.invalid"));
}

TEST(TcpStore, TwoProcessesWithOneRankAreBothNamed) {
  auto all = ranks(4);
  all[3].rank = 2;
  EXPECT_THAT(on_threads(all, [](TcpStore&, int) {}),
              testing::Each(AllOf(HasSubstr("two processes say that they are rank 2: host"), HasSubstr("host2 pid "),
                                  HasSubstr("host3 pid "))));
  for (const int ports : {1, 4}) {
    auto zeros = ranks(3, [&](StoreOptions& o) { o.num_ports = ports; });
    zeros[2].rank = 0;
    EXPECT_THAT(on_threads(zeros, [](TcpStore&, int) {}),
                testing::Each(AllOf(HasSubstr("two processes say that they are rank 0"), HasSubstr("host0 pid "),
                                    HasSubstr("host2 pid "))));
  }
}

TEST(TcpStore, AnotherSizeOfTheWorldIsRefused) {
  auto all = ranks(2);
  all[1].world = 3;
  EXPECT_THAT(on_threads(all, [](TcpStore&, int) {}),
              testing::Each(AllOf(HasSubstr("rank 1 (host1 pid "), HasSubstr("one of 3 ranks, rank 0 as one of 2"))));
}

TEST(TcpStore, RanksThatDifferAreRefusedAndBothNamed) {
  const std::pair<size_t, const char*> changes[] = {{0, "build"}, {1, "GPU vendor"}, {2, "configuration"}};
  for (const auto& [which, name] : changes) {
    auto all = ranks(3);
    all[2].identity[which].second = "other";
    EXPECT_THAT(on_threads(all, [](TcpStore&, int) {}),
                testing::Each(AllOf(HasSubstr("ranks of one run must be alike"), HasSubstr("rank 2 (host2 pid "),
                                    HasSubstr(std::string("has the ") + name + " other, rank 0 (host0 pid "),
                                    HasSubstr("has " + all[0].identity[which].second))));
  }
}

TEST(TcpStore, APortInUseIsNamedOrPassedOver) {
  const Socket taken = *listen_at("127.0.0.1", 0);
  auto one = options(0, 1, port_of(taken));
  one.timeout = milliseconds(500);
  EXPECT_THAT(message_of<CommError>([&] { TcpStore store(one); }),
              AllOf(HasSubstr("in use"), HasSubstr(std::to_string(port_of(taken))), HasSubstr("CHIRON_RDZV")));
  auto all = ranks(2, [&](StoreOptions& o) {
    o.port = port_of(taken);
    o.num_ports = 8;
  });
  EXPECT_THAT(on_threads(all,
                         [&](TcpStore& store, int) {
                           EXPECT_GT(store.port(), port_of(taken));
                           store.barrier("b");
                         }),
              testing::Each("no error"));
}

TEST(TcpStore, TwoJobsDoNotMix) {
  const int port = free_port();
  std::vector<StoreOptions> all;
  for (const char* job : {"a", "b"})
    for (int rank : {0, 1}) {
      all.push_back(options(rank, 2, port));
      all.back().job = job;
      all.back().host = job + std::to_string(rank);
      all.back().num_ports = 8;
    }
  EXPECT_THAT(on_threads(all,
                         [&](TcpStore& store, int) {
                           EXPECT_EQ(store.members()[0][0], store.members()[1][0]);
                           store.barrier("b");
                         }),
              testing::Each("no error"));
  // At one port the second is told.
  auto mixed = ranks(2, [](StoreOptions& o) { o.timeout = milliseconds(500); });
  mixed[1].job = "other";
  const auto said = on_threads(mixed, [](TcpStore&, int) {});
  EXPECT_THAT(said[0], HasSubstr("rank 1 of 2 did not come"));
  EXPECT_THAT(said[1], HasSubstr("rank 0 of another job is there"));
}

TEST(TcpStore, WaitsEndWithinTheTimeOutAndSayForWhom) {
  auto change = [](StoreOptions& o) {
    if (o.rank != 0) o.timeout = milliseconds(500);
  };
  const auto said = on_threads(ranks(3, change), [](TcpStore& store, int rank) {
    if (rank == 1) {
      EXPECT_THAT(message_of<CommError>([&] { store.get("never"); }),
                  AllOf(HasSubstr("rank 1 (host1 pid "), HasSubstr("500 ms for never, which no rank has set")));
      store.set("one", "");
    } else if (rank == 2) {
      EXPECT_THAT(message_of<CommError>([&] { store.barrier("b"); }), HasSubstr("at the barrier b for ranks 0 and 1"));
      store.set("two", "");
    } else {
      store.wait("one");
      store.wait("two");
    }
  });
  EXPECT_THAT(said, testing::Each("no error"));
}

TEST(TcpStore, AFailureReachesAllAndTheFirstIsHeard) {
  const auto said = on_threads(ranks(3), [](TcpStore& store, int rank) {
    if (rank == 1) {
      store.fail("rank 1: tokens.bin is broken");
      throw DataError("tokens.bin is broken");
    }
    while (rank == 2 && !store.failure()) std::this_thread::sleep_for(milliseconds(1));
    store.barrier("b");
  });
  EXPECT_EQ(said[0], "rank 1: tokens.bin is broken");
  EXPECT_EQ(said[1], "tokens.bin is broken");
  EXPECT_EQ(said[2], "rank 1: tokens.bin is broken");
}

TEST(TcpStore, ARankThatIsGoneIsNoticedAtOnce) {
  for (const int who : {0, 1}) {
    const auto start = std::chrono::steady_clock::now();
    const auto said = on_threads(ranks(3), [who](TcpStore& store, int rank) {
      store.barrier("all are here");
      if (rank == who) throw DataError("no word");
      store.barrier("never");
    });
    EXPECT_THAT(said[2], HasSubstr("rank " + std::to_string(who) + " (host" + std::to_string(who)));
    EXPECT_THAT(said[2], HasSubstr("has ended in the middle"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

TEST(TcpStore, WhoeverElseTalksToRankZeroDoesNoHarm) {
  auto all = ranks(2);
  std::thread stranger([&] {
    for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "", "\x04\0\0\0abcd"}) {
      std::string why;
      Socket s;
      for (int i = 0; i < 500 && !s.open(); ++i) {
        s = connect_to("127.0.0.1", all[0].port, Clock::now() + std::chrono::seconds(1), why);
        if (!s.open()) std::this_thread::sleep_for(milliseconds(2));
      }
      write_all(s, std::string(text, text[0] == 4 ? 8 : std::strlen(text)), Clock::now() + std::chrono::seconds(1));
    }
  });
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(50));
    TcpStore store(all[1]);
    store.barrier("b");
    store.leave();
  });
  TcpStore store(all[0]);
  store.barrier("b");
  stranger.join();
  late.join();
  EXPECT_EQ(store.failure(), std::nullopt);
  store.leave();
}

TEST(TcpStore, ProcessesMeetAndAKilledOneIsNamed) {
  const int port = free_port();
  std::vector<pid_t> children;
  for (int rank : {1, 2}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto o = options(rank, 3, port);
      o.host.clear();
      try {
        TcpStore store(o);
        store.barrier("met");
        if (rank == 2) raise(SIGKILL);
        store.get("never");
      } catch (const CommError& e) {
        _exit(std::string(e.what()).find("rank 2 (") != std::string::npos ? 6 : 1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  auto o = options(0, 3, port);
  TcpStore store(o);
  store.barrier("met");
  EXPECT_THAT(message_of<CommError>([&] { store.get("never"); }),
              AllOf(HasSubstr("rank 2 ("), HasSubstr("pid " + std::to_string(children[1])),
                    HasSubstr("has ended in the middle")));
  int status = 0;
  waitpid(children[0], &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 6);
  waitpid(children[1], &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace chiron
