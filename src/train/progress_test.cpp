#include "train/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cmath>
#include <sstream>
#include <string>

namespace chiron {
namespace {

using testing::HasSubstr;
using testing::Not;

StepStats stats_of(int64_t step, double seconds = 0.5) {
  return {.step = step,
          .max_steps = 100,
          .loss = 2.5,
          .grad_norm = 1.25,
          .learning_rate = 3e-4,
          .tokens = 2048,
          .seconds = seconds,
          .data_wait_seconds = seconds / 4,
          .memory_bytes = 123'400'000};
}

struct Screen {
  explicit Screen(int width, int64_t every = 10)
      : columns(width),
        progress(
            out, [this] { return columns; }, every) {}
  /// What was written since the last call.
  std::string take() {
    std::string text = out.str();
    out.str("");
    return text;
  }
  int columns;
  std::ostringstream out;
  Progress progress;
};

TEST(Progress, PlainLineHoldsEverything) {
  Screen screen(0);
  screen.progress.step(stats_of(1));
  EXPECT_EQ(screen.take(), "step 1/100  loss 2.5000  lr 3.00e-04  grad 1.25  4.1k tok/s  wait 25%  123MB  ETA 0:50\n");
}

TEST(Progress, PlainLinesComeEveryNStepsAndAtBothEnds) {
  Screen screen(0, 10);
  std::vector<int64_t> shown;
  for (int64_t step = 3; step <= 100; ++step) {  // a run resumed at step 2
    screen.progress.step(stats_of(step));
    if (!screen.take().empty()) shown.push_back(step);
  }
  EXPECT_EQ(shown, (std::vector<int64_t>{3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}));
}

TEST(Progress, PlainTextHasNoControlCharacters) {
  Screen screen(0, 1);
  for (int64_t step = 1; step <= 5; ++step) screen.progress.step(stats_of(step));
  screen.progress.note("saved");
  screen.progress.finish();
  std::string text = screen.take();
  EXPECT_THAT(text, HasSubstr("\nsaved\n"));
  for (char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 127)) << static_cast<int>(c);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Progress, EvaluationsAlwaysShow) {
  Screen screen(0, 10);
  screen.progress.step(stats_of(1));
  screen.take();
  StepStats stats = stats_of(4);
  stats.validation_loss = 2.75;
  screen.progress.step(stats);
  EXPECT_THAT(screen.take(), HasSubstr("validation 2.7500"));
}

TEST(Progress, SkippedStepsAndNonFiniteNumbersShow) {
  Screen screen(0, 1);
  StepStats stats = stats_of(1);
  stats.loss = std::nan("");
  stats.skipped_steps = 3;
  screen.progress.step(stats);
  const std::string text = screen.take();
  EXPECT_THAT(text, testing::AllOf(HasSubstr("loss nan"), HasSubstr("skipped 3")));
  EXPECT_THAT(text, Not(HasSubstr("scale")));
  stats.loss_scale = 65536;
  screen.progress.step(stats);
  EXPECT_THAT(screen.take(), HasSubstr("scale 65536"));
}

TEST(Progress, ATerminalHasOneLineThatIsDrawnAgain) {
  Screen screen(200);
  for (int64_t step = 1; step <= 3; ++step) {
    screen.progress.step(stats_of(step));
    std::string text = screen.take();
    EXPECT_THAT(text, testing::StartsWith("\rstep " + std::to_string(step) + "/100"));
    EXPECT_THAT(text, testing::EndsWith("\x1b[K"));
    EXPECT_THAT(text, Not(HasSubstr("\n")));
  }
  screen.progress.note("saved");
  EXPECT_EQ(screen.take(), "\r\x1b[Ksaved\n");
  screen.progress.finish();
  EXPECT_EQ(screen.take(), "");  // the note has ended the line already
  screen.progress.step(stats_of(4));
  screen.take();
  screen.progress.finish();
  EXPECT_EQ(screen.take(), "\n");
}

TEST(Progress, ATerminalIsDrawnAtMostTenTimesASecond) {
  Screen screen(80);
  int drawings = 0;
  for (int64_t step = 1; step < 100; ++step) {
    screen.progress.step(stats_of(step, 0.01));
    drawings += !screen.take().empty();
  }
  EXPECT_GE(drawings, 9);
  EXPECT_LE(drawings, 11);
  screen.progress.step(stats_of(100, 0.001));
  EXPECT_THAT(screen.take(), HasSubstr("step 100/100"));
}

TEST(Progress, TheLineFitsEveryWidth) {
  Screen screen(0);
  StepStats stats = stats_of(1);
  stats.validation_loss = 2.75;
  stats.skipped_steps = 2;
  for (int width = 1; width <= 140; ++width) {
    screen.columns = width;
    screen.progress.step(stats);
    std::string text = screen.take();
    text = text.substr(1, text.find('\x1b') - 1);
    EXPECT_LE(text.size(), static_cast<size_t>(std::max(width - 1, 1))) << text;
  }
}

TEST(Progress, ANarrowTerminalKeepsStepLossAndEta) {
  Screen screen(40);
  screen.progress.step(stats_of(1));
  EXPECT_EQ(screen.take(), "\rstep 1/100  loss 2.5000  ETA 0:50\x1b[K");
}

TEST(Progress, EtaFollowsTheSpeedOfTheLastSteps) {
  Screen screen(0, 1);
  for (int64_t step = 1; step <= 30; ++step) screen.progress.step(stats_of(step, 10));
  EXPECT_THAT(screen.take(), HasSubstr("ETA 11:40\n"));  // 70 steps of 10 s
  StepStats stats = stats_of(31, 20);
  screen.progress.step(stats);  // one slow step moves it a little
  std::string text = screen.take();
  EXPECT_THAT(text, HasSubstr("ETA 12:"));
  for (int64_t step = 32; step <= 100; ++step) {
    screen.take();
    screen.progress.step(stats_of(step, 3));
  }
  EXPECT_THAT(screen.take(), HasSubstr("ETA 0:00\n"));
}

TEST(Progress, EvaluationsAndSavesCountForTheEtaOnAverageAndNotForTheSpeed) {
  Screen screen(0, 1);
  for (int64_t step = 1; step <= 50; ++step) {
    StepStats stats = stats_of(step, 1);
    if (step % 10 == 0) stats.other_seconds = 20;  // 2 s a step
    screen.take();
    screen.progress.step(stats);
  }
  EXPECT_THAT(screen.take(), testing::AllOf(HasSubstr("  2.0k tok/s  "), HasSubstr("ETA 2:30\n")));  // 50 of 1 + 2 s
}

TEST(Progress, LongTimesAreReadable) {
  auto eta = [](double seconds) {
    Screen screen(0);
    StepStats stats = stats_of(1, seconds);
    stats.max_steps = 2;
    screen.progress.step(stats);
    std::string text = screen.take();
    return text.substr(text.find("ETA"));
  };
  EXPECT_EQ(eta(7), "ETA 0:07\n");
  EXPECT_EQ(eta(3723), "ETA 1:02:03\n");
  EXPECT_EQ(eta(200'000), "ETA 2d 07h\n");
  EXPECT_EQ(eta(1e12), "ETA ?\n");
}

TEST(TerminalColumns, AFileHasNoneAndATerminalItsOwn) {
  int file = open("/dev/null", O_WRONLY);
  EXPECT_EQ(terminal_columns(file), 0);
  close(file);
  winsize size{.ws_row = 24, .ws_col = 97, .ws_xpixel = 0, .ws_ypixel = 0};
  int master = -1, slave = -1;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  std::string term = std::getenv("TERM") ? std::getenv("TERM") : "";
  setenv("TERM", "xterm", 1);
  EXPECT_EQ(terminal_columns(slave), 97);
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(terminal_columns(slave), 0);
  setenv("TERM", term.c_str(), 1);
  close(master);
  close(slave);
}

}  // namespace
}  // namespace chiron
