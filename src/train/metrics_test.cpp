#include "train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/temp_dir.h"

namespace chiron {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class MetricsTest : public testing::Test {
 protected:
  std::string file() const { return folder_ / "metrics.jsonl"; }
  std::string text() const {
    std::ifstream in(file());
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> out;
    std::istringstream in(text());
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const auto& line : lines()) out.push_back(line["step"]);
    return out;
  }
  void put(const std::string& content) const { std::ofstream(file(), std::ios::binary) << content; }

  TempDir folder_;
};

StepStats stats_of(int64_t step) {
  return {.step = step,
          .max_steps = 100,
          .loss = 2.5,
          .grad_norm = 1.25,
          .learning_rate = 3e-4,
          .tokens = 2048,
          .seconds = 0.5,
          .other_seconds = 7,
          .data_wait_seconds = 0.125,
          .skipped_steps = 1,
          .memory_bytes = 1 << 20};
}

TEST_F(MetricsTest, OneObjectPerStep) {
  Metrics metrics(file(), 0);
  metrics.write(stats_of(1));
  StepStats second = stats_of(2);
  second.validation_loss = 2.75;
  second.loss_scale = 32768;
  second.overflowed_steps = 3;
  metrics.write(second);
  auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["step"], 1);
  EXPECT_EQ(all[0]["loss"], 2.5);
  EXPECT_EQ(all[0]["grad_norm"], 1.25);
  EXPECT_EQ(all[0]["lr"], 3e-4);
  EXPECT_EQ(all[0]["tokens"], 2048);
  EXPECT_EQ(all[0]["tokens_per_second"], 4096.0);
  EXPECT_EQ(all[0]["step_seconds"], 0.5);
  EXPECT_EQ(all[0]["other_seconds"], 7.0);
  EXPECT_EQ(all[0]["data_wait_seconds"], 0.125);
  EXPECT_EQ(all[0]["memory_bytes"], 1 << 20);
  EXPECT_EQ(all[0]["skipped_steps"], 1);
  EXPECT_EQ(all[0]["finite"], true);
  EXPECT_THAT(all[0]["time"].get<std::string>(), testing::MatchesRegex("....-..-..T..:..:..Z"));
  EXPECT_FALSE(all[0].contains("validation_loss"));
  EXPECT_FALSE(all[0].contains("loss_scale"));
  EXPECT_EQ(all[1]["loss_scale"], 32768);
  EXPECT_EQ(all[1]["overflowed_steps"], 3);
  EXPECT_EQ(all[1]["validation_loss"], 2.75);
}

TEST_F(MetricsTest, EachLineIsInTheFileAtOnce) {
  Metrics metrics(file(), 0);
  for (int64_t step = 1; step <= 3; ++step) {
    metrics.write(stats_of(step));
    EXPECT_EQ(lines().size(), static_cast<size_t>(step));
  }
}

TEST_F(MetricsTest, NonFiniteNumbersAreNull) {
  Metrics metrics(file(), 0);
  StepStats stats = stats_of(1);
  stats.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.write(stats);
  stats = stats_of(2);
  stats.grad_norm = std::numeric_limits<double>::infinity();
  metrics.write(stats);
  stats = stats_of(3);
  stats.validation_loss = -std::numeric_limits<double>::infinity();
  metrics.write(stats);
  auto all = lines();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0]["loss"].is_null());
  EXPECT_EQ(all[0]["grad_norm"], 1.25);
  EXPECT_TRUE(all[1]["grad_norm"].is_null());
  EXPECT_TRUE(all[2]["validation_loss"].is_null());
  for (const auto& line : all) EXPECT_EQ(line["finite"], false);
}

TEST_F(MetricsTest, ZeroSecondsGiveNoInfiniteSpeed) {
  Metrics metrics(file(), 0);
  StepStats stats = stats_of(1);
  stats.seconds = 0;
  metrics.write(stats);
  EXPECT_EQ(lines()[0]["tokens_per_second"], 0.0);
  EXPECT_EQ(lines()[0]["finite"], true);
}

TEST_F(MetricsTest, ResumeDropsTheStepsDoneAgain) {
  {
    Metrics metrics(file(), 0);
    for (int64_t step = 1; step <= 7; ++step) metrics.write(stats_of(step));
  }
  {
    Metrics metrics(file(), 5);
    EXPECT_EQ(metrics.dropped(), 2);
    EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
    metrics.write(stats_of(6));
  }
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Metrics(file(), 6).dropped(), 0);
  EXPECT_EQ(steps().size(), 6u);
  EXPECT_EQ(Metrics(file(), 0).dropped(), 6);
  EXPECT_EQ(text(), "");
}

TEST_F(MetricsTest, ResumeDropsATornLastLine) {
  put("{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"lo");
  Metrics metrics(file(), 2);
  EXPECT_EQ(metrics.dropped(), 1);
  metrics.write(stats_of(3));
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 3}));
}

TEST_F(MetricsTest, ALineWithoutItsNewlineIsTornToo) {
  put("{\"step\":1}\n{\"step\":2}");
  Metrics metrics(file(), 2);
  EXPECT_EQ(metrics.dropped(), 1);
  metrics.write(stats_of(2));
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(MetricsTest, ResumeDropsWhatIsNoLineOfOurs) {
  put("{\"step\":1}\nhello\n{\"step\":\"2\"}\n{\"loss\":1}\n[1]\n\n{\"step\":2}\n{\"step\":2}\n");
  EXPECT_EQ(Metrics(file(), 9).dropped(), 6);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(MetricsTest, MissingFolderIsAnIoErrorThatNamesTheFile) {
  try {
    Metrics metrics(folder_ / "no/metrics.jsonl", 0);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ExitCode::io);
    EXPECT_THAT(error.what(), HasSubstr(folder_ / "no/metrics.jsonl"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
}

TEST_F(MetricsTest, AFullDiskIsAnIoError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  fs::create_symlink("/dev/full", folder_ / "full.jsonl");
  Metrics metrics(folder_ / "full.jsonl", 0);
  try {
    metrics.write(stats_of(1));
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("full"));
    EXPECT_THAT(error.what(), HasSubstr("full.jsonl"));
  }
}

TEST_F(MetricsTest, WhatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_THROW(Metrics(file(), 0), IoError);
  fs::remove(file());
  fs::create_directory(file());
  EXPECT_THROW(Metrics(file(), 0), IoError);
}

TEST(ResidentBytes, GrowsWithTheMemoryInUse) {
  int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  std::vector<char> block(64 << 20, 1);
  EXPECT_GT(resident_bytes(), before + (48 << 20)) << block[0];
}

}  // namespace
}  // namespace chiron
