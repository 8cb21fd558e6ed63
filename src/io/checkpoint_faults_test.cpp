#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temp_dir.h"
#include "io/checkpoint.h"
#include "io/checkpoint_testing.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// More than one write of the model's file.
constexpr int64_t kFloats = 300'000;

/// The wait status of a child process that runs f.
int in_child(const std::function<void()>& f) {
  pid_t pid = fork();
  if (pid == 0) {
    try {
      f();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

struct LongCheckpointFaults : testing::Test {
  TempDir temp;
  std::string dir = temp / "checkpoints";
  TrainingState old_state{kFloats}, new_state{kFloats};

  void TearDown() override { set_file_faults({}); }

  /// The newest whole checkpoint loads and holds the one state or the other; returns its step, -1 if there is none.
  int64_t newest_is_old_or_new() {
    auto newest = newest_checkpoint(dir);
    if (!newest) return -1;
    Checkpoint checkpoint(newest->path);
    EXPECT_TRUE(old_state.equals(checkpoint) || new_state.equals(checkpoint)) << newest->path;
    if (new_state.equals(checkpoint)) return new_state.step;
    return old_state.step;
  }

  /// Kills `act` at each of its operations in turn, each time from a fresh `prepare`; `check` gets the number.
  int64_t kill_everywhere(const std::function<void()>& prepare, const std::function<void()>& act,
                          const std::function<void(int64_t)>& check) {
    for (int64_t n = 1;; ++n) {
      remove_tree(dir);
      prepare();
      int status = in_child([&] {
        set_file_faults({.crash_at = n});
        act();
      });
      check(n);
      if (!killed(status)) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return n - 1;
      }
    }
  }

  /// A later save works and cleans up.
  void expect_life_goes_on() {
    TrainingState next(kFloats);
    next.set(30);
    next.save(dir);
    EXPECT_TRUE(next.equals(Checkpoint(newest_checkpoint(dir)->path)));
    prune_checkpoints(dir, 1);
    EXPECT_THAT(list_directory(dir), ElementsAre(".lock", "step-00000030"));
  }
};

TEST_F(LongCheckpointFaults, KilledAtEveryOperationOfASave) {
  old_state.set(10);
  new_state.set(20);
  int64_t last = 10;
  int64_t operations = kill_everywhere([&] { old_state.save(dir); }, [&] { new_state.save(dir); },
                                       [&](int64_t n) {
                                         int64_t step = newest_is_old_or_new();
                                         EXPECT_GE(step, last) << "the new one does not vanish again, at " << n;
                                         last = step;
                                         expect_life_goes_on();
                                       });
  EXPECT_EQ(last, 20);
  EXPECT_GT(operations, 25);
}

TEST_F(LongCheckpointFaults, KilledAtEveryOperationOfTheFirstSave) {
  new_state.set(20);
  int64_t last = -1;
  kill_everywhere([] {}, [&] { new_state.save(dir); },
                  [&](int64_t n) {
                    int64_t step = newest_is_old_or_new();
                    EXPECT_GE(step, last) << n;
                    last = step;
                  });
  EXPECT_EQ(last, 20);
}

TEST_F(LongCheckpointFaults, KilledWhileAStepIsSavedAgain) {
  old_state.set(10);
  new_state.set(20);
  new_state.step = 10;
  bool replaced = false;
  kill_everywhere([&] { old_state.save(dir); }, [&] { new_state.save(dir); },
                  [&](int64_t n) {
                    auto newest = newest_checkpoint(dir);
                    ASSERT_TRUE(newest.has_value()) << n;
                    Checkpoint checkpoint(newest->path);
                    bool is_new = new_state.equals(checkpoint);
                    EXPECT_TRUE(is_new || old_state.equals(checkpoint)) << n;
                    EXPECT_TRUE(is_new || !replaced) << n;
                    replaced = is_new;
                    expect_life_goes_on();
                  });
  EXPECT_TRUE(replaced);
}

TEST_F(LongCheckpointFaults, KilledAtEveryOperationOfAPrune) {
  old_state.set(10);
  new_state.set(20);
  TrainingState first(kFloats);
  first.set(5);
  kill_everywhere(
      [&] {
        first.save(dir);
        old_state.save(dir);
        new_state.save(dir);
      },
      [&] { prune_checkpoints(dir, 1); },
      [&](int64_t n) {
        EXPECT_EQ(newest_is_old_or_new(), 20) << n;
        for (const CheckpointInfo& info : find_checkpoints(dir).whole) EXPECT_NO_THROW(Checkpoint(info.path)) << n;
        EXPECT_EQ(find_checkpoints(dir).skipped.size(), 0u) << "what is being removed is out of sight";
        expect_life_goes_on();
      });
}

TEST_F(LongCheckpointFaults, DiskFullFromEveryOperationOn) {
  old_state.set(10);
  new_state.set(20);
  old_state.save(dir);
  set_file_faults({});
  new_state.save(temp / "elsewhere");
  const int64_t operations = file_operations();
  for (bool lasting : {true, false}) {
    int failures = 0;
    for (int64_t n = 1; n <= operations; ++n) {
      set_file_faults({.fail_at = n, .lasting = lasting});
      try {
        new_state.save(dir);
        set_file_faults({});
        EXPECT_EQ(newest_is_old_or_new(), 20) << n;
      } catch (const IoError& e) {
        set_file_faults({});
        ++failures;
        EXPECT_THAT(e.what(), AllOf(HasSubstr(dir), HasSubstr("disk is full"))) << n;
        int64_t step = newest_is_old_or_new();
        EXPECT_TRUE(step == 10 || step == 20) << n;
        EXPECT_TRUE(old_state.equals(Checkpoint(dir + "/step-00000010"))) << n;
        for (const std::string& name : list_directory(dir)) EXPECT_FALSE(name.starts_with(".saving")) << n << name;
      }
      remove_tree(dir + "/step-00000020");
    }
    EXPECT_GT(failures, 20);
  }
}

TEST_F(LongCheckpointFaults, AFileSystemThatIsReallyFull) {
  std::string small = temp / "small";
  make_directories(small);
  if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=8m") != 0) GTEST_SKIP() << "mounting a file system needs root";
  TrainingState big(1'300'000);  // 5.2 MB: one fits, two do not
  big.set(10);
  big.save(small + "/checkpoints");
  TrainingState next(1'300'000);
  next.set(20);
  try {
    next.save(small + "/checkpoints");
    ADD_FAILURE() << "there is no room for two";
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("shard-00001-model"), HasSubstr("disk is full")));
  }
  auto newest = newest_checkpoint(small + "/checkpoints");
  EXPECT_TRUE(newest && newest->step == 10 && big.equals(Checkpoint(newest->path)));
  EXPECT_THAT(list_directory(small + "/checkpoints"), ElementsAre(".lock", "step-00000010"));
  remove_tree(small + "/checkpoints/step-00000010");
  EXPECT_EQ(next.save(small + "/checkpoints").step, 20);
  umount2(small.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace chiron
