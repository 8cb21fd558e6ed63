// `chiron plan --cluster` predicts what runs of CPU ranks take. Needs an idle machine with a core for each rank, MPI
// and mpirun:
//   build/cpu/chiron_tests --gtest_filter='*LongPrediction*' --gtest_also_run_disabled_tests

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/files.h"
#include "base/json_file.h"
#include "base/temp_dir.h"
#include "support/sanitized.h"

namespace chiron::tests {
namespace {

struct Case {
  const char* name;
  const char* layout;
};

class LongPrediction : public testing::TestWithParam<Case> {};

/// What a command prints; fails the test if the command fails.
std::string output_of(const std::string& command, const TempDir& dir) {
  const std::string file = dir / "output";
  const int status = std::system((command + " > " + file + " 2>" + dir / "errors").c_str());
  EXPECT_EQ(status, 0) << command << "\n" << read_file(dir / "errors");
  return read_file(file);
}

double number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  EXPECT_NE(at, std::string::npos) << word << " is not in\n" << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + word.size()));
}

/// Seconds of a step: the median of those after the first few.
double measured_step(const std::string& metrics) {
  std::vector<double> seconds;
  const std::string text = read_file(metrics);
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const auto line = parse_json(std::string_view(text).substr(at, end - at), metrics);
    if (line.contains("step_seconds")) seconds.push_back(line.at("step_seconds"));
  }
  EXPECT_GT(seconds.size(), 8u);
  if (seconds.size() <= 8) return 0;
  seconds.erase(seconds.begin(), seconds.begin() + 4);
  std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
  return seconds[seconds.size() / 2];
}

/// Bytes per second that a rank takes in while another does, by copying through memory as ranks of a node do.
double copy_bandwidth() {
  std::vector<char> from(64 << 20, 1), to(64 << 20, 2);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::copy(from.begin(), from.end(), to.begin());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return static_cast<double>(to.size()) / best;
}

TEST_P(LongPrediction, DISABLED_OfAStepIsWithin15Percent) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "two ranks need two cores";
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  TempDir dir;
  const std::string program = CHIRON_PROGRAM, config = CHIRON_SOURCE_DIR "/configs/gpt2-10m.yaml";
  const std::string sets =
      fmt::format(" --set training.gradient_accumulation=4 --set run.threads=1 {}", GetParam().layout);
  output_of(fmt::format("{} bench step --config {} --threads 1 --json", program, config), dir);
  write_file(dir / "ops.json", read_file(dir / "output"));
  write_file(dir / "cluster.yaml", fmt::format("ranks_per_node: 2\noverlap: false\nops: ops.json\n"
                                               "inside: {{bandwidth: {:.4g}, latency: 20}}\n",
                                               copy_bandwidth() / 1e9));
  const std::string plan =
      output_of(fmt::format("{} plan {} {} --cluster {}", program, config, sets, dir / "cluster.yaml"), dir);
  const double predicted = number_after(plan.substr(plan.find("\npredicted")), "step") * 1e-3;
  output_of(fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 {} train {} {} --out {} "
                        "--set training.max_steps=25 --set training.eval_every=0 --set checkpoint.every=0",
                        program, config, sets, dir / "run"),
            dir);
  const double seen = measured_step(dir / "run/metrics.jsonl");
  fmt::print("{}: predicted {:.1f} ms, measured {:.1f} ms, {:+.1f} %\n", GetParam().name, predicted * 1e3, seen * 1e3,
             100 * (predicted / seen - 1));
  EXPECT_NEAR(predicted / seen, 1, 0.15);
}

INSTANTIATE_TEST_SUITE_P(All, LongPrediction,
                         testing::Values(Case{"Dp2", "--set parallel.dp=2"}, Case{"Tp2", "--set parallel.tp=2"},
                                         Case{"Pp2", "--set parallel.pp=2"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace chiron::tests
