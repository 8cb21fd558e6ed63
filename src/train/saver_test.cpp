#include "train/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/temp_dir.h"
#include "comm/comm_testing.h"
#include "comm/thread_ranks.h"
#include "train/saver_testing.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// One rank's state and saver.
struct SavingRank : TestRank {
  SavingRank(Communicator& c, const std::string& dir, int64_t writers = 0)
      : state(c.rank(), c.size()),
        saver({.dir = dir, .keep_last = 2, .writers = writers, .snapshot_bytes = snapshot_bytes(state.contents())}, c,
              s) {}

  /// As between two steps of training, which changes all values at once.
  void save(int64_t step, bool in_background) {
    state.set(step);
    saver.save(state.contents(), in_background);
    state.set(step + 1000);
  }
  void poll_until_whole() {
    while (saver.is_saving()) {
      saver.poll();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  CutState state;
  Saver saver;
};

struct SaverTest : testing::Test {
  TempDir temp;
  std::string dir = temp / "checkpoints";

  void TearDown() override { set_file_faults({}); }

  void save_over(int n, int64_t step, bool in_background, const std::string& to, int64_t writers = 0) {
    run_thread_ranks(n, [&](Communicator& c) {
      SavingRank rank(c, to, writers);
      rank.save(step, in_background);
      rank.saver.finish();
    });
  }
  void expect_loads(const std::string& path, int n) {
    run_thread_ranks(n, [&](Communicator& c) {
      CutState state(c.rank(), c.size());
      EXPECT_TRUE(state.loads(Checkpoint(path, c.rank(), c.size()))) << "rank " << c.rank() << " of " << n;
    });
  }
  /// The step of the newest whole checkpoint, whose values are those of that step; -1 if there is none.
  int64_t newest() {
    const auto found = newest_checkpoint(dir);
    if (!found) return -1;
    EXPECT_TRUE(CutState(0, 1).loads(Checkpoint(found->path))) << found->path;
    return found->step;
  }
};
using SaverOnRanks = SaverTest;

TEST_F(SaverOnRanks, LoadedByAnyOtherNumberOfRanks) {
  for (const bool in_background : {false, true})
    for (const int n : {1, 2, 3, 5}) {
      const std::string to = fmt::format("{}/{}-{}", dir, n, in_background);
      save_over(n, 7, in_background, to);
      for (const int m : {1, 2, 3, 4}) expect_loads(to + "/step-00000007", m);
    }
}

TEST_F(SaverOnRanks, InTheBackgroundTheSameBytes) {
  for (const int n : {1, 3}) {
    const std::string one = fmt::format("{}/now-{}", dir, n), other = fmt::format("{}/later-{}", dir, n);
    save_over(n, 7, false, one);
    save_over(n, 7, true, other, 1);
    const auto names = list_directory(one + "/step-00000007");
    EXPECT_EQ(list_directory(other + "/step-00000007"), names);
    for (const std::string& name : names)
      EXPECT_EQ(read_file(one + "/step-00000007/" + name), read_file(other + "/step-00000007/" + name)) << name;
    const std::string third = "shard-00001-model-00003-of-00003.safetensors";  // parts that are no box
    EXPECT_EQ(std::count(names.begin(), names.end(), third), n > 1);
    EXPECT_THAT(list_directory(other), ElementsAre(".lock", "step-00000007"));
  }
}

TEST_F(SaverOnRanks, TheNextSaveWaitsForTheLast) {
  run_thread_ranks(2, [&](Communicator& c) {
    SavingRank rank(c, dir);
    for (const int64_t step : {1, 2, 3}) rank.save(step, true);
    rank.save(4, false);
  });
  EXPECT_EQ(newest(), 4);
  EXPECT_THAT(list_directory(dir), ElementsAre(".lock", "step-00000003", "step-00000004")) << "keep_last is 2";
}

TEST_F(SaverOnRanks, IsWholeAfterSomePolls) {
  run_thread_ranks(3, [&](Communicator& c) {
    SavingRank rank(c, dir, 2);
    rank.save(9, true);
    rank.poll_until_whole();
    EXPECT_EQ(newest(), 9);
  });
}

TEST_F(SaverOnRanks, FewWritersTakeTurns) {
  auto written = [&](const std::string& name) {
    return std::filesystem::last_write_time(dir + "/step-00000005/" + name);
  };
  save_over(3, 5, true, dir, 1);
  EXPECT_EQ(newest(), 5);
  for (int r = 1; r < 3; ++r)
    EXPECT_LE(written(fmt::format("shard-{:05}-optimizer-00001-of-00001.safetensors", r)),
              written(fmt::format("shard-{:05}-model-00001-of-00003.safetensors", r + 1)));
}

TEST_F(SaverOnRanks, AnAbandonedSaveLeavesTheOneBefore) {
  save_over(2, 1, false, dir);
  run_thread_ranks(2, [&](Communicator& c) {
    SavingRank rank(c, dir);
    rank.save(2, true);
  });
  EXPECT_EQ(newest(), 1);
  save_over(2, 3, true, dir);
  EXPECT_THAT(list_directory(dir), ElementsAre(".lock", "step-00000001", "step-00000003"));
}

TEST_F(SaverOnRanks, ALostRankLeavesTheOneBefore) {
  save_over(3, 1, false, dir);
  try {
    run_thread_ranks(3, [&](Communicator& c) {
      SavingRank rank(c, dir);
      rank.save(2, true);
      if (c.rank() == 1) throw IoError("lost");
      rank.saver.finish();
    });
    ADD_FAILURE() << "no error";
  } catch (const IoError& e) {
    EXPECT_STREQ(e.what(), "lost");
  }
  EXPECT_EQ(newest(), 1);
}

TEST_F(SaverOnRanks, AFailingWriterIsToldOfOnEveryRank) {
  save_over(2, 1, false, dir);
  set_file_faults({});
  save_over(2, 2, true, temp / "elsewhere");
  const int64_t operations = file_operations();
  EXPECT_GT(operations, 40);
  int64_t failures = 0;
  for (int64_t n = 1; n <= operations; n += 3) {
    set_file_faults({.fail_at = n, .lasting = true});
    run_thread_ranks(2, [&](Communicator& c) {
      SavingRank rank(c, dir);
      try {
        rank.save(2, true);
        rank.poll_until_whole();
        EXPECT_GT(n, operations / 2) << "the lock is not needed, nor is what is removed";
      } catch (const Error& e) {
        failures += c.rank() == 0;
        EXPECT_EQ(e.code(), ExitCode::io);
        EXPECT_THAT(e.what(), AllOf(HasSubstr(dir), HasSubstr("disk is full"))) << n;
      }
      c.barrier(rank.s);
      if (c.rank() == 0) {
        set_file_faults({});
        EXPECT_THAT(newest(), AnyOf(1, 2)) << n;
        EXPECT_THAT(list_directory(dir), Not(Contains(StartsWith(".saving")))) << n;
      }
      c.barrier(rank.s);
      rank.save(3, true);  // room was made
      rank.saver.finish();
    });
    EXPECT_EQ(newest(), 3) << n;
    remove_tree(dir);
    save_over(2, 1, false, dir);
  }
  EXPECT_GT(failures, operations / 6);
}

/// Where tests/dcp_read.py finds a checkpoint of three ranks: in the folder that CHIRON_SHARDS names.
TEST_F(SaverOnRanks, ShardsForPyTorch) {
  const char* folder = std::getenv("CHIRON_SHARDS");
  const std::string to = folder ? folder : dir;
  save_over(3, 7, true, to);
  expect_loads(to + "/step-00000007", 1);
}

using LongSaverOnRanks = SaverTest;

TEST_F(LongSaverOnRanks, KilledAtEveryOperation) {
  for (const bool in_background : {false, true}) {
    int64_t last = 10;
    for (int64_t n = 1; last >= 0; ++n) {
      remove_tree(dir);
      save_over(2, 10, false, dir);
      const pid_t pid = fork();
      if (pid == 0) {
        set_file_faults({.crash_at = n});
        try {
          save_over(2, 20, in_background, dir);
        } catch (...) {
          _exit(1);
        }
        _exit(0);
      }
      int status = 0;
      waitpid(pid, &status, 0);
      const int64_t step = newest();
      EXPECT_GE(step, last) << "the new one does not vanish again, at " << n;
      last = step;
      save_over(3, 30, in_background, dir);  // life goes on
      EXPECT_EQ(newest(), 30);
      EXPECT_THAT(list_directory(dir), Not(Contains(StartsWith(".saving"))));
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      EXPECT_GT(n, 40);
      break;
    }
    EXPECT_EQ(last, 20);
  }
}

}  // namespace
}  // namespace chiron
