#include "comm/mpi_ranks.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/error_testing.h"
#include "comm/comm_testing.h"
#include "comm/mesh.h"
#include "comm/open_ranks.h"
#include "comm/tcp_socket.h"
#include "comm/thread_ranks.h"

namespace chiron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What the launched processes wrote, and the exit code of the launcher.
struct Ran {
  int code = 0;
  std::string text;
};

Ran run(const std::string& command) {
  Ran ran;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) ran.text.append(buffer, n);
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

bool is_rank() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

/// This test's own body again, under mpirun.
Ran mpirun(int n, const std::string& arguments = "") {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return run(fmt::format(
      "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun "
      "--oversubscribe "
      "-n {} {} {} --gtest_filter={}.{}",
      n, arguments, std::filesystem::read_symlink("/proc/self/exe").string(), test->test_suite_name(), test->name()));
}

/// Tests of suites MpiRanks*: each launches itself; what stands behind `ranks` runs on every rank.
class MpiRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
    if (std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  }
  /// The world of this rank. Errors of ranks end the process, as in the program.
  template <class F>
  static void as_rank(F&& f, OpenOptions options = {}) {
    options.meet_timeout = milliseconds(20'000);
    try {
      World world = open_ranks(find_ranks(process_environment()), options);
      f(world);
    } catch (const Error& e) {
      std::fprintf(stderr, "\nrank %s: %s\n", std::getenv("OMPI_COMM_WORLD_RANK"), e.what());
      std::fflush(stderr);
      _exit(static_cast<int>(e.code()));
    }
  }
};

using LongMpiRanks = MpiRanks;

void expect_ran_well(const Ran& ran) { EXPECT_EQ(ran.code, 0) << ran.text; }

TEST_F(LongMpiRanks, CollectivesAreAsThoseOfThreads) {
  if (!is_rank()) {
    for (const int n : {2, 3, 4}) expect_ran_well(mpirun(n));
    return;
  }
  OpenOptions options;
  options.scratch_bytes = 4096;  // many pieces
  as_rank(
      [](World& w) {
        Communicator& c = *w.comm;
        for (const int64_t size : {1, 3, 100, 10'000}) {
          expect_reductions<float>(c, size);
          expect_reductions<bf16>(c, size);
          expect_reductions<double>(c, size);
          expect_moves(c, size);
        }
        expect_messages(c, 1 << 20);
        expect_messages(c, 0);
        if (c.size() == 4) expect_splits(c);
        EXPECT_EQ(c.scratch_bytes(), 4096);
      },
      options);
}

TEST_F(MpiRanks, AnAllReduceMovesTwiceTheShareOfTheOthers) {
  if (!is_rank()) {
    expect_ran_well(mpirun(4));
    return;
  }
  as_rank([](World& w) {
    TestRank t;
    DeviceArray<float> x(t.s, test_values(w.ranks.rank, 1 << 12));
    const int64_t before = w.comm->bytes_received();
    w.comm->all_reduce(t.s, x.tensor(), Reduce::sum);
    EXPECT_EQ(w.comm->bytes_received() - before, 2 * 3 * 4 * (1 << 12) / 4);
  });
}

TEST_F(MpiRanks, AMeshOfProcesses) {
  if (!is_rank()) {
    expect_ran_well(mpirun(4));
    return;
  }
  as_rank([](World& w) {
    TestRank t;
    Mesh mesh(*w.comm, {.tp = 2});
    DeviceArray<int32_t> x(t.s, {w.ranks.rank});
    mesh.group(Axis::tp).all_reduce(t.s, x.tensor(), Reduce::sum);
    EXPECT_EQ(x.read()[0], w.ranks.rank / 2 * 4 + 1);
    mesh.group(Axis::dp).all_reduce(t.s, x.tensor(), Reduce::sum);
    EXPECT_EQ(x.read()[0], 6);
    EXPECT_THAT(w.topology, HasSubstr("4 ranks on 1 node, 4 on "));
    EXPECT_EQ(w.cores, num_cores());
  });
}

TEST_F(MpiRanks, EveryRankHasItsShareOfTheCores) {
  if (!is_rank()) {
    expect_ran_well(mpirun(2));
    return;
  }
  as_rank([](World& w) {
    TestRank t;
    DeviceArray<int32_t> x(t.s, {w.cores});
    w.comm->all_reduce(t.s, x.tensor(), Reduce::sum);
    // What mpirun's default leaves free is used too.
    EXPECT_GE(x.read()[0], static_cast<int>(std::thread::hardware_concurrency()) / 2);
  });
}

TEST_F(MpiRanks, RanksThatDivergeEndAllAndAreNamed) {
  if (!is_rank()) {
    const Ran ran = mpirun(3);
    EXPECT_EQ(ran.code, 6) << ran.text;
    EXPECT_THAT(ran.text, AllOf(HasSubstr("ranks make different calls"),
                                HasSubstr("all_reduce #2 of f32 x 3 (sum) in the group world"),
                                HasSubstr("all_reduce #2 of f32 x 2 (sum)")));
    return;
  }
  as_rank([](World& w) {
    TestRank t;
    DeviceArray<float> x(t.s, {1, 2, 3});
    w.comm->barrier(t.s);
    w.comm->all_reduce(t.s, w.ranks.rank == 1 ? x.tensor().slice(0, 2) : x.tensor(), Reduce::sum);
  });
}

TEST_F(LongMpiRanks, ARankThatHangsIsNamedWithinTheTimeOut) {
  if (!is_rank()) {
    const auto start = Clock::now();
    const Ran ran = mpirun(3);
    EXPECT_EQ(ran.code, 6) << ran.text;
    EXPECT_THAT(ran.text, AllOf(HasSubstr("in all_reduce #2 of f32 x 1 (sum) in the group world"), HasSubstr("1000 ms"),
                                HasSubstr("rank 1 ("), HasSubstr("last heard of in barrier #1 in the group world")));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
    return;
  }
  OpenOptions options;
  options.call_timeout = milliseconds(1000);
  as_rank(
      [](World& w) {
        TestRank t;
        DeviceArray<float> x(t.s, {1});
        w.comm->barrier(t.s);
        if (w.ranks.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
        w.comm->all_reduce(t.s, x.tensor(), Reduce::sum);
      },
      options);
}

TEST_F(LongMpiRanks, ARankThatIsKilledIsNamedAtOnce) {
  if (!is_rank()) {
    // mpirun notices too, and would kill the others after a second, which is short on a busy machine.
    const auto start = Clock::now();
    EXPECT_THAT(mpirun(3, "--enable-recovery").text,
                AllOf(HasSubstr("rank 0 in all_reduce #2"), HasSubstr("rank 2 in all_reduce #2"), HasSubstr("rank 1 ("),
                      HasSubstr("has ended in the middle")));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
    return;
  }
  as_rank([](World& w) {
    TestRank t;
    DeviceArray<float> x(t.s, {1});
    w.comm->barrier(t.s);
    if (w.ranks.rank == 1) ::raise(SIGKILL);
    for (;;) w.comm->all_reduce(t.s, x.tensor(), Reduce::sum);
  });
}

TEST_F(MpiRanks, ARankThatFailsSaysWhyToAll) {
  if (!is_rank()) {
    const Ran ran = mpirun(2, "--enable-recovery");
    EXPECT_THAT(ran.text, AllOf(HasSubstr("rank 0 in barrier #1 in the group world: rank 1: tokens.bin is broken"),
                                HasSubstr("rank 1: tokens.bin is broken")));
    return;
  }
  as_rank([](World& w) {
    TestRank t;
    if (w.ranks.rank == 1) {
      w.store->fail("rank 1: tokens.bin is broken");
      throw DataError("tokens.bin is broken");
    }
    w.comm->barrier(t.s);
  });
}

TEST_F(MpiRanks, RanksThatAreUnlikeEndBeforeMpiStarts) {
  if (!is_rank()) {
    const Ran ran = mpirun(2);
    EXPECT_EQ(ran.code, 2) << ran.text;
    EXPECT_THAT(ran.text,
                AllOf(HasSubstr("rank 1 ("), HasSubstr("has the GPU vendor AMD, rank 0 ("), HasSubstr("NVIDIA")));
    return;
  }
  OpenOptions options;
  options.identity = {{"GPU vendor", find_ranks(process_environment()).rank == 0 ? "NVIDIA" : "AMD"}};
  as_rank([](World&) {}, options);
}

/// Processes that other launchers started: they meet, compare, and are told what CPU ranks need.
TEST(OpenRanks, ProcessesWithoutMpiMeetAndAreToldToUseMpirun) {
  const std::string port = std::to_string(port_of(*listen_at("127.0.0.1", 0)));
  const auto torchrun = [&](int rank) -> Environment {
    return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"},          {"LOCAL_RANK", std::to_string(rank)},
            {"LOCAL_WORLD_SIZE", "3"},      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  };
  const auto srun = [&](int rank) -> Environment {
    return {{"SLURM_PROCID", std::to_string(rank)},  {"SLURM_NTASKS", "3"},          {"SLURM_JOB_ID", "7"},
            {"SLURM_LOCALID", std::to_string(rank)}, {"SLURM_NTASKS_PER_NODE", "3"}, {"SLURM_STEP_ID", "0"},
            {"SLURM_JOB_NODELIST", "localhost"},     {"CHIRON_RDZV_PORT", port}};
  };
  const auto kubeflow = [&](int rank) -> Environment {
    return {{"PET_NODE_RANK", std::to_string(rank)},
            {"PET_NNODES", "3"},
            {"PET_NPROC_PER_NODE", "1"},
            {"PET_MASTER_ADDR", "127.0.0.1"},
            {"PET_MASTER_PORT", port}};
  };
  auto meet = [](const Environment& environment, const std::string& configuration) {
    OpenOptions options;
    options.identity = {{"configuration", configuration}};
    options.bind_cores = false;
    return message_of<ConfigError>([&] { open_ranks(find_ranks(environment), options); });
  };
  const std::function<Environment(int)> launchers[] = {torchrun, srun, kubeflow};
  for (const bool alike : {true, false})
    for (const auto& launcher : launchers) {
      const auto* expected = alike ? "start them by `mpirun -n 3 chiron train" : "rank 2 (";
      std::vector<pid_t> children;
      for (int rank : {1, 2}) {
        children.push_back(::fork());
        if (children.back() != 0) continue;
        const std::string said = meet(launcher(rank), rank == 1 || alike ? "a" : "b");
        _exit(said.find(expected) == std::string::npos ? 1 : 0);
      }
      EXPECT_THAT(meet(launcher(0), "a"), HasSubstr(expected));
      for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      }
    }
}

TEST(OpenRanks, OneProcessNeedsNothing) {
  World w = open_ranks({}, {});
  EXPECT_EQ(w.comm->size(), 1);
  EXPECT_EQ(w.store, nullptr);
  EXPECT_EQ(w.cores, num_cores());
  EXPECT_THAT(w.topology, HasSubstr("one process, "));
}

TEST(OpenRanks, CoresAreSharedOut) {
  const std::vector<int> cores{0, 1, 2, 3, 8, 9, 10};
  EXPECT_EQ(share_of_cores(cores, 0, 2), (std::vector{0, 1, 2}));
  EXPECT_EQ(share_of_cores(cores, 1, 2), (std::vector{3, 8, 9, 10}));
  EXPECT_EQ(share_of_cores(cores, 0, 1), cores);
  EXPECT_EQ(share_of_cores({4, 5}, 2, 3), std::vector{4});
  EXPECT_EQ(cores_text(cores), "0-3,8-10");
  EXPECT_EQ(parse_cores("0-3,8-10"), cores);
  EXPECT_EQ(parse_cores(cores_text({5})), std::vector{5});
  EXPECT_TRUE(parse_cores("").empty());
}

}  // namespace
}  // namespace chiron
