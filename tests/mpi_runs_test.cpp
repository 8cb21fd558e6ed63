// Whole runs over MPI processes: by mpirun, by `chiron launch`, by launchers without MPI; and how they fail.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/temp_dir.h"
#include "comm/mpi_ranks.h"
#include "comm/tcp_socket.h"
#include "support/program.h"

namespace chiron::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kConfig = R"(
model: {family: llama, num_layers: 2, d_model: 16, num_heads: 2, vocab_size: 32}
training: {batch_size: 1, seq_len: 12, max_steps: 4, warmup_steps: 2, eval_every: 2, eval_batches: 3,
           lr_schedule: constant}
data: {synthetic: true}
checkpoint: {every: 2}
run: {threads: 1, device: cpu}
)";

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

/// A port of this machine that is free, or was a moment ago.
int free_port() { return port_of(*listen_at("127.0.0.1", 0)); }

/// The processes that train in `run`, by rank.
std::map<int, pid_t> ranks_of(const std::string& run) {
  std::map<int, pid_t> ranks;
  for (const std::string& name : list_directory("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream line("/proc/" + name + "/cmdline"), environment("/proc/" + name + "/environ");
    const std::string words(std::istreambuf_iterator<char>(line), {});
    if (words.find(std::string("\0train\0", 7)) == std::string::npos || words.find(run) == std::string::npos) continue;
    constexpr std::string_view kRank = "OMPI_COMM_WORLD_RANK=";
    for (std::string entry; std::getline(environment, entry, '\0');)
      if (entry.starts_with(kRank)) ranks[std::stoi(entry.substr(kRank.size()))] = std::stoi(name);
  }
  return ranks;
}

struct LongMpiRuns : testing::Test {
  TempDir dir;
  std::string config = dir / "c.yaml", run = dir / "run";

  LongMpiRuns() { write_file(config, kConfig); }
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
    if (std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  }

  Outcome shell(const std::string& line) const {
    const std::string text = dir / "shell.txt";
    const int status = std::system(("{ " + line + " ; } > '" + text + "' 2>&1").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(text)};
  }
  static std::string mpirun(const std::string& arguments) {
    return "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe " + arguments;
  }
  /// What a rank runs.
  Words train_words(const Words& sets = {}) const {
    Words words{"train", config, "--out", run};
    for (const std::string& s : sets) words = words + Words{"--set", s};
    return words;
  }
  std::string train_line(const Words& sets = {}) const {
    std::string line = CHIRON_PROGRAM;
    for (const std::string& word : train_words(sets)) line += " '" + word + "'";
    return line;
  }
  Words launch_words(int n, const Words& sets = {}, const Words& more = {}) const {
    return Words{"launch", "--nproc", std::to_string(n)} + more + Words{"--"} + train_words(sets);
  }
  Outcome launch(int n, const Words& sets = {}, const Words& more = {}) const {
    return chiron(dir.path(), launch_words(n, sets, more));
  }
  /// Starts a run without end and waits until it has saved.
  std::unique_ptr<Process> start(int n, const Words& sets = {}, const Words& more = {}) const {
    auto process = std::make_unique<Process>(launch_words(n, Words{"training.max_steps=100000000"} + sets, more),
                                             dir / "started.txt");
    EXPECT_TRUE(eventually([&] { return newest().has_value(); }));
    return process;
  }
  std::optional<CheckpointInfo> newest() const { return newest_checkpoint(run + "/checkpoints"); }

  /// Processes with these variables each, at once.
  std::vector<Outcome> together(const Words& variables, const Words& sets = {}) const {
    std::string line;
    for (size_t k = 0; k < variables.size(); ++k) {
      const std::string file = dir / fmt::format("rank{}", k);
      line += fmt::format("( timeout 60 env {} {} > {}.txt 2>&1 ; echo $? > {}.code ) & ", variables[k],
                          train_line(sets), file, file);
    }
    shell(line + "wait");
    std::vector<Outcome> all;
    for (size_t k = 0; k < variables.size(); ++k)
      all.push_back(
          {std::stoi(read_file(dir / fmt::format("rank{}.code", k))), read_file(dir / fmt::format("rank{}.txt", k))});
    return all;
  }

  std::vector<double> losses() const {
    std::vector<double> all;
    for (const auto& line : metrics_of(run)) {
      EXPECT_EQ(line["step"], all.size() + 1);
      all.push_back(line["loss"]);
    }
    return all;
  }
  /// One process, which sees what four see.
  std::vector<double> losses_of_one(int steps) {
    const std::string ranks = std::exchange(run, dir / "one");
    const Outcome o = chiron(
        dir.path(), train_words({"training.gradient_accumulation=4", fmt::format("training.max_steps={}", steps)}));
    EXPECT_EQ(o.code, 0) << o.text;
    const auto all = losses();
    EXPECT_EQ(all.size(), static_cast<size_t>(steps));
    run = ranks;
    return all;
  }
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << "step " << i + 1;
}

TEST_F(LongMpiRuns, FourAgreeWithOneOfFourTimesItsAccumulation) {
  const auto want = losses_of_one(4);
  const auto expect_ran = [&](const Outcome& o) {
    ASSERT_EQ(o.code, 0) << o.text;
    EXPECT_THAT(o.text, AllOf(HasSubstr("[rank 0] rank 0 of 4"), HasSubstr("4 ranks on 1 node")));
    EXPECT_EQ(count(o.text, "done: 4 steps"), 1) << o.text;
    EXPECT_EQ(o.text.find("[rank 1]"), std::string::npos) << o.text;
    expect_near(losses(), want);
  };
  expect_ran(shell(mpirun("-n 4 ") + train_line()));
  run = dir / "launched";
  const Outcome launched = launch(4);
  expect_ran(launched);
  EXPECT_THAT(launched.text, HasSubstr("launch: 4 ranks through "));
}

TEST_F(LongMpiRuns, GoOnWithOtherNumbers) {
  const auto want = losses_of_one(8);
  int step = 0;
  for (const int n : {4, 2, 1, 4}) {
    const Words sets{fmt::format("training.max_steps={}", step += 2),
                     fmt::format("training.gradient_accumulation={}", 4 / n)};
    const Outcome o = n == 1 ? chiron(dir.path(), train_words(sets)) : launch(n, sets);
    ASSERT_EQ(o.code, 0) << o.text;
  }
  expect_near(losses(), want);
}

TEST_F(LongMpiRuns, WhatIsWrongIsSaidOnce) {
  auto expect_once = [&](const Outcome& o, int code, const std::string& what) {
    EXPECT_EQ(o.code, code) << o.text;
    EXPECT_THAT(o.text, HasSubstr(what));
    EXPECT_EQ(count(o.text, "chiron: error: "), 1) << o.text;
  };
  const std::string unknown = train_line({"training.max_stepz=3"});
  expect_once(shell(mpirun("-n 3 ") + unknown), 2, "max_stepz");
  expect_once(launch(3, {"training.max_stepz=3"}), 2, "max_stepz");
  expect_once(shell(mpirun("-n 1 ") + train_line() + " : -n 1 " + unknown), 2, "rank 1 (");
  expect_once(launch(3, {"parallel.tp=2"}), 2, "start 2 or 4 ranks");
  expect_once(launch(3, {"run.device=gpu"}), 2, "run.device: gpu with 3 ranks");
  expect_once(shell(mpirun("-n 1 ") + train_line() + " : -n 1 " + train_line({"training.seed=9"})), 2,
              "has the training.seed 9, rank 0 (");
  const auto first = start(2);
  expect_once(launch(2), 4, "lock is locked by process");
}

TEST_F(LongMpiRuns, AKilledRankEndsAllAndTheRunGoesOn) {
  const auto process = start(3, {"checkpoint.every=1"});
  ::kill(ranks_of(run).at(1), SIGKILL);
  const Outcome o = process->wait();
  EXPECT_EQ(o.code, 6) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("rank 0 in "), HasSubstr("rank 1 ("), HasSubstr("in the group "),
                            HasSubstr("launch: rank 1 on ")));
  EXPECT_EQ(count(o.text, "has ended in the middle"), 1) << o.text;
  ASSERT_TRUE(newest());
  const int64_t step = Checkpoint(newest()->path).step();
  const Outcome on = launch(3, {"checkpoint.every=1", fmt::format("training.max_steps={}", step + 2)});
  EXPECT_EQ(on.code, 0) << on.text;
  EXPECT_THAT(on.text, HasSubstr(fmt::format("resumed from {}", run)));
  EXPECT_EQ(losses().size(), static_cast<size_t>(step) + 2);
}

TEST_F(LongMpiRuns, RestartsGoOnFromTheNewestCheckpoint) {
  const auto process = start(2, {}, {"--max-restarts", "1"});
  const auto dead = ranks_of(run);
  ::kill(dead.at(0), SIGKILL);
  ASSERT_TRUE(eventually([&] { return read_file(dir / "started.txt").find("resumed from") != std::string::npos; }));
  std::map<int, pid_t> ranks;
  ASSERT_TRUE(eventually([&] { return (ranks = ranks_of(run)).size() == 2 && ranks.at(0) != dead.at(0); }));
  ::kill(ranks.at(1), SIGKILL);
  const Outcome o = process->wait();
  EXPECT_EQ(o.code, 6) << o.text;
  EXPECT_EQ(count(o.text, "restart 1 of 1"), 1) << o.text;
  EXPECT_EQ(count(o.text, "was ended by signal 9"), 2) << o.text;
  losses();
  // What cannot get better is not tried again.
  EXPECT_EQ(count(launch(2, {"training.max_stepz=1"}, {"--max-restarts", "3"}).text, "restart"), 0);
}

TEST_F(LongMpiRuns, AStoppedRankIsNamedWithinTheTimeOut) {
  const auto process = start(3, {"parallel.timeout=3"});
  ::kill(ranks_of(run).at(2), SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome o = process->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  EXPECT_EQ(o.code, 6) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("has waited 3000 ms for "), HasSubstr("rank 2 ("), HasSubstr(" #")));
  EXPECT_EQ(count(o.text, "has waited 3000 ms"), 1) << o.text;
  ASSERT_TRUE(newest());
  Checkpoint whole(newest()->path);
}

TEST_F(LongMpiRuns, ASignalStopsAllRanksAndSaves) {
  for (const int signal : {SIGINT, SIGTERM}) {
    run = dir / fmt::format("run{}", signal);
    Process process(launch_words(2, {"checkpoint.every=1000000", "parallel.zero=1", "training.max_steps=100000000"}),
                    dir / "stopped.txt");
    ASSERT_TRUE(eventually([&] { return file_exists(run + "/metrics.jsonl"); }));
    process.signal(signal);
    const Outcome o = process.wait();
    EXPECT_EQ(o.code, 75) << o.text;
    EXPECT_EQ(count(o.text, "finishing the step, then saving"), 1) << o.text;
    EXPECT_EQ(count(o.text, "stopped by a signal after step"), 1) << o.text;
    EXPECT_EQ(o.text.find("mpirun detected"), std::string::npos) << o.text;
    EXPECT_EQ(o.text.find('\r'), std::string::npos) << "mpirun's terminal is nobody's";
    ASSERT_TRUE(newest());
    EXPECT_EQ(static_cast<size_t>(newest()->step), losses().size());
  }
}

TEST_F(LongMpiRuns, APortInUse) {
  const auto taken = listen_at("127.0.0.1", 0);
  const Outcome o = shell(fmt::format("CHIRON_RDZV=127.0.0.1:{} ", port_of(*taken)) + mpirun("-n 2 ") +
                          train_line({"parallel.timeout=5"}));
  EXPECT_EQ(o.code, 6) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("rank 0 ("), HasSubstr("in use is"), HasSubstr("CHIRON_RDZV=host:port")));
  EXPECT_EQ(count(o.text, "chiron: error: "), 1) << o.text;
}

/// Variables of other launchers, of rank k of n.
struct Variables {
  std::string name;
  std::function<std::string(int k, int n, int port)> of;
};
const Variables kOwn{"own", [](int k, int n, int port) {
                       return fmt::format("CHIRON_RANK={} CHIRON_WORLD_SIZE={} CHIRON_RDZV=127.0.0.1:{}", k, n, port);
                     }};
const Variables kTorchrun{"torchrun", [](int k, int n, int port) {
                            return fmt::format(
                                "RANK={0} WORLD_SIZE={1} LOCAL_RANK={0} LOCAL_WORLD_SIZE={1} GROUP_RANK=0 "
                                "MASTER_ADDR=127.0.0.1 MASTER_PORT={2} TORCHELASTIC_RUN_ID=a",
                                k, n, port);
                          }};
const Variables kSrun{"srun", [](int k, int n, int port) {
                        return fmt::format(
                            "SLURM_PROCID={0} SLURM_NTASKS={1} SLURM_JOB_ID=7 SLURM_LOCALID={0} SLURM_STEP_ID=0 "
                            "SLURM_NTASKS_PER_NODE={1} SLURM_JOB_NODELIST=localhost CHIRON_RDZV_PORT={2}",
                            k, n, port);
                      }};
const Variables kKubeflow{"kubeflow", [](int k, int n, int port) {
                            return fmt::format(
                                "PET_NODE_RANK={} PET_NNODES={} PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=127.0.0.1 "
                                "PET_MASTER_PORT={}",
                                k, n, port);
                          }};

TEST_F(LongMpiRuns, OtherLaunchersAreToldWhatRanksOnTheCpuNeed) {
  for (const Variables& v : {kOwn, kTorchrun, kSrun, kKubeflow}) {
    SCOPED_TRACE(v.name);
    const int port = free_port();
    Words variables;
    for (int k = 0; k < 3; ++k)
      variables.push_back(v.of(k, 3, port) +
                          fmt::format(" TORCHELASTIC_ERROR_FILE={}", dir / fmt::format("error{}.json", k)));
    const auto all = together(variables);
    EXPECT_THAT(all[0].text, AllOf(HasSubstr("3 ranks met at"), HasSubstr("start them by `mpirun -n 3 chiron train")));
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(all[k].code, 2) << all[k].text;
      if (k > 0) {
        EXPECT_EQ(all[k].text, "");
      }
      const auto written = nlohmann::json::parse(read_file(dir / fmt::format("error{}.json", k)));
      EXPECT_THAT(written["message"]["message"].get<std::string>(), HasSubstr("mpirun -n 3"));
      EXPECT_GT(std::stoll(written["message"]["extraInfo"]["timestamp"].get<std::string>()), 1'700'000'000);
    }
  }
}

TEST_F(LongMpiRuns, AMissingPeerAndADoubledRank) {
  const Words soon{"parallel.timeout=3"};
  for (const Variables& v : {kOwn, kTorchrun}) {
    SCOPED_TRACE(v.name);
    int port = free_port();
    auto all = together({v.of(0, 3, port), v.of(1, 3, port)}, soon);
    EXPECT_THAT(all[0].text, AllOf(HasSubstr("rank 2 of 3 did not come to 127.0.0.1"), HasSubstr("within 3 s")));
    EXPECT_EQ(all[1].text, "");
    for (const Outcome& o : all) EXPECT_EQ(o.code, 6) << o.text;
    port = free_port();
    all = together({v.of(0, 3, port), v.of(1, 3, port), v.of(1, 3, port)}, soon);
    EXPECT_THAT(all[0].text, HasSubstr("two processes say that they are rank 1"));
    for (const Outcome& o : all) EXPECT_EQ(o.code, 6) << o.text;
    EXPECT_THAT(together({v.of(1, 3, free_port())}, soon)[0].text, HasSubstr("found no rank 0"));
  }
}

struct Launch : LongMpiRuns {
  /// With a PATH of its own, in which `mpirun` prints what it is given.
  Outcome with_echo(const std::string& variables, const std::string& arguments) {
    make_directories(dir / "bin");
    write_file(dir / "bin/mpirun",
               "#!/bin/sh\nprintf 'with %s\\n' \"$*\"; echo rdzv $CHIRON_RDZV rank $RANK $PET_NNODES.\n");
    EXPECT_EQ(shell("chmod +x " + dir / "bin/mpirun").code, 0);
    return shell(fmt::format("env {} PATH={} " CHIRON_PROGRAM " launch {} -- train {}", variables, dir / "bin",
                             arguments, config));
  }
};

TEST_F(Launch, SeveralNodesTakeOneMpirunWithTheirNames) {
  Outcome o = with_echo("RANK=0 WORLD_SIZE=2", "--nproc 4 --nnodes 2 --hostfile hosts --rdzv a:29500");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("with -n 8 --hostfile hosts --map-by ppr:4:node -x CHIRON_RDZV /"),
                            HasSubstr("rdzv a:29500 rank .")));
  o = with_echo(
      "PET_NNODES=2 PET_NPROC_PER_NODE=3 PET_NODE_RANK=0 PET_MASTER_ADDR=a PET_MASTER_PORT=5 SLURM_JOB_NODELIST=a", "");
  EXPECT_THAT(o.text, AllOf(HasSubstr("with -n 6 --map-by ppr:3:node"), HasSubstr("rdzv a:5 rank .")));
  for (const auto& [variables, arguments, said] :
       {std::tuple{"A=b", "--nproc 2 --nnodes 2", "name the nodes by --hostfile FILE"},
        {"A=b", "--nproc 2 --nnodes 2 --hostfile h", "--rdzv is missing"},
        {"PET_NODE_RANK=1", "--nproc 2 --nnodes 2 --hostfile h", "run `chiron launch` on node 0 only"},
        {"PET_NPROC_PER_NODE=auto", "", "PET_NPROC_PER_NODE is auto"},
        {"A=b", "", "--nproc is missing"}}) {
    o = with_echo(variables, arguments);
    EXPECT_EQ(o.code, 2) << o.text;
    EXPECT_THAT(o.text, HasSubstr(said));
  }
}

TEST_F(Launch, SaysWhatIsMissing) {
  Outcome o = shell("PATH=/nowhere " CHIRON_PROGRAM " launch --nproc 2 -- train " + config);
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("install the package openmpi-bin"));
  o = shell(CHIRON_PROGRAM " launch --nproc 2 -- plan " + config);
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("only train has ranks"));
  o = shell(CHIRON_PROGRAM " launch --nproc 2 -- train " + config + " --fresk");
  EXPECT_THAT(o.text, HasSubstr("did you mean --fresh"));
}

}  // namespace
}  // namespace chiron::tests
