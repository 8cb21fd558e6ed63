#include "base/log.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace chiron {
namespace {

/// A log that writes to a file without a name.
struct Captured {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), std::fclose};
  std::string text() {
    std::string all;
    std::rewind(file.get());
    for (int c; (c = std::fgetc(file.get())) != EOF;) all += static_cast<char>(c);
    return all;
  }
};

TEST(Log, LevelsFilterAndName) {
  Captured to;
  Log log(LogLevel::info, 0, 1, to.file.get());
  log.debug("hidden {}", 1);
  log.info("plain {}", 2);
  log.warning("careful");
  log.error("broken");
  EXPECT_EQ(to.text(), "plain 2\nwarning: careful\nerror: broken\n");
  EXPECT_FALSE(log.enabled(LogLevel::debug));
}

TEST(Log, SeveralRanksAreNamed) {
  Captured to;
  Log log(LogLevel::debug, 2, 4, to.file.get());
  log.debug("x");
  EXPECT_EQ(to.text(), "[rank 2] debug: x\n");
}

TEST(Log, OnceOnly) {
  Captured to;
  Log log(LogLevel::info, 0, 1, to.file.get());
  for (int i = 0; i < 3; ++i) log.warning_once("slow {}", "path");
  log.warning_once("slow {}", "disk");
  EXPECT_EQ(to.text(), "warning: slow path\nwarning: slow disk\n");
}

TEST(Log, LinesOfThreadsStayWhole) {
  Captured to;
  Log log(LogLevel::info, 0, 1, to.file.get());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) log.info("{}", "aaaaaaaaaa");
    });
  }
  threads.clear();
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += "aaaaaaaaaa\n";
  EXPECT_EQ(to.text(), expected);
}

}  // namespace
}  // namespace chiron
