#include "base/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error_testing.h"
#include "base/files.h"
#include "base/temp_dir.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(FileLock, RefusesASecondAndNamesTheFirst) {
  TempDir dir;
  std::string path = dir / "lock";
  {
    FileLock lock(path);
    EXPECT_THAT(message_of<IoError>([&] { FileLock second(path); }),
                AllOf(HasSubstr(path), HasSubstr(fmt::format("process {}:", getpid()))));
    EXPECT_FALSE(FileLock::attempt(path).has_value());
    FileLock moved = std::move(lock);
    EXPECT_FALSE(FileLock::attempt(path).has_value());
  }
  EXPECT_TRUE(FileLock::attempt(path).has_value());
}

TEST(FileLock, DiesWithItsProcess) {
  TempDir dir;
  std::string path = dir / "lock";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t pid = fork();
  if (pid == 0) {
    FileLock lock(path);
    if (::write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char c;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_THAT(message_of<IoError>([&] { FileLock second(path); }), HasSubstr(fmt::format("process {}:", pid)));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  FileLock second(path);
  close(ready[0]);
  close(ready[1]);
}

TEST(FileLock, Waits) {
  TempDir dir;
  std::string path = dir / "lock";
  std::optional<FileLock> first(path);
  std::atomic<bool> released = false, in_order = false;
  std::thread waiter([&] {
    FileLock lock = FileLock::wait(path);
    in_order = released.load();
  });
  usleep(20000);
  released = true;
  first.reset();
  waiter.join();
  EXPECT_TRUE(in_order);
}

TEST(FileLock, ALockKnowsWhetherItsFileIsInPlace) {
  TempDir dir;
  const std::string path = dir / "run/lock", moved = dir / "moved";
  make_directories(dir / "run");
  std::optional<FileLock> lock(path);
  EXPECT_TRUE(lock->in_place());
  rename_path(dir / "run", moved);
  EXPECT_FALSE(lock->in_place());
  make_directories(dir / "run");
  FileLock other(path);
  EXPECT_FALSE(lock->in_place()) << "another file of the same name";
  EXPECT_TRUE(other.in_place());
}

TEST(FileLock, WhoWaitsForALockThatIsRemovedTakesTheNewOne) {
  TempDir dir;
  const std::string path = dir / "lock";
  std::optional<FileLock> first(path);
  std::thread waiter([&] {
    FileLock lock = FileLock::wait(path);
    EXPECT_TRUE(lock.in_place());
    EXPECT_FALSE(FileLock::attempt(path)) << "nobody else has it";
  });
  usleep(20000);
  remove_file(path);
  first.reset();
  waiter.join();
}

}  // namespace
}  // namespace chiron
