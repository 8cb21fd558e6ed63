#include "comm/ranks.h"

#include <gmock/gmock.h>

#include "base/error_testing.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Environment join(Environment a, const Environment& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

const Environment kTorchrun{
    {"RANK", "5"},       {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},      {"LOCAL_WORLD_SIZE", "4"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29400"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "3"},  {"PMIX_NAMESPACE", "prterun-1"}};
const Environment kSrun{{"SLURM_JOB_ID", "77"},         {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "6"},          {"SLURM_NTASKS", "8"},
                        {"SLURM_LOCALID", "2"},         {"SLURM_NODEID", "1"},
                        {"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_JOB_NODELIST", "tux[07-12,20],gpu3"}};

TEST(Ranks, OneProcessWithoutALauncher) {
  const RankInfo i = find_ranks({{"PATH", "/bin"}, {"MASTER_ADDR", "elsewhere"}});
  EXPECT_EQ(i.world, 1);
  EXPECT_EQ(i.launcher, Launcher::single);
  EXPECT_EQ(i.str(), "one process");
}

TEST(Ranks, Torchrun) {
  const RankInfo i = find_ranks(kTorchrun);
  EXPECT_EQ(i.str(),
            "rank 5 of 8 (local rank 1 of 4, node 1), started by torchrun: RANK=5 and WORLD_SIZE=8; ranks meet at "
            "node0:29400");
  EXPECT_EQ(i.num_ports, 1);
  EXPECT_FALSE(i.has_mpi());
}

TEST(Ranks, TorchrunsAgentHasThePortAlready) {
  const RankInfo i = find_ranks(join(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(i.port, 29401);
  EXPECT_GT(i.num_ports, 1);
  EXPECT_EQ(find_ranks(join(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"CHIRON_RDZV_PORT", "31000"}})).port,
            31000);
  const std::string first = i.job;
  EXPECT_NE(find_ranks(join(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).job, first);
}

TEST(Ranks, OpenMpiOnOneNode) {
  const RankInfo i = find_ranks(kOpenMpi);
  EXPECT_THAT(i.str(), HasSubstr("rank 3 of 4 (local rank 3 of 4, node 0), started by Open MPI"));
  EXPECT_EQ(i.address, "127.0.0.1");
  EXPECT_TRUE(i.has_mpi());
  EXPECT_TRUE(i.bound_by_default);
  EXPECT_FALSE(find_ranks(join(kOpenMpi, {{"OMPI_MCA_hwloc_base_binding_policy", "core"}})).bound_by_default);
  EXPECT_NE(i.port, find_ranks(join(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-2"}})).port);
}

TEST(Ranks, OpenMpiOnSeveralNodesNeedsAnAddress) {
  const Environment two = join(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_THAT(message_of<ConfigError>([&] { find_ranks(two); }),
              AllOf(HasSubstr("CHIRON_RDZV=host:port"), HasSubstr("MASTER_ADDR")));
  const RankInfo i = find_ranks(two, {.rendezvous = "[fe80::1]:1234"});
  EXPECT_EQ(i.node, 1);
  EXPECT_EQ(i.address, "fe80::1");
  EXPECT_EQ(i.port, 1234);
  EXPECT_EQ(find_ranks(join(two, {{"CHIRON_RDZV", "a:5"}})).address, "a");
  EXPECT_EQ(find_ranks(join(two, {{"MASTER_ADDR", "b"}})).address, "b");
}

TEST(Ranks, Hydra) {
  const RankInfo i =
      find_ranks({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(i.launcher, Launcher::hydra);
  EXPECT_EQ(i.local_rank, 1);
  EXPECT_TRUE(i.has_mpi());
}

TEST(Ranks, Srun) {
  const RankInfo i = find_ranks(kSrun);
  EXPECT_THAT(i.str(), HasSubstr("rank 6 of 8 (local rank 2 of 4, node 1), started by Slurm"));
  EXPECT_EQ(i.address, "tux07");
  // A step of fewer tasks than the allocation; nodes with unequal numbers of tasks.
  EXPECT_EQ(find_ranks(join(kSrun, {{"SLURM_STEP_NUM_TASKS", "7"}})).world, 7);
  EXPECT_EQ(find_ranks(join(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "4,3"}})).local_world, 3);
  EXPECT_EQ(find_ranks(join(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}})).local_world, 4);
  const Environment bare{{"SLURM_PROCID", "0"},          {"SLURM_NTASKS", "2"},
                         {"SLURM_LOCALID", "0"},         {"SLURM_NODEID", "0"},
                         {"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
  EXPECT_EQ(find_ranks(bare).world, 2);
  EXPECT_EQ(find_ranks(bare).address, "10.0.0.1");
}

TEST(Ranks, ShellsOfSlurmAreOneProcess) {
  const Environment salloc{{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "a[1-2]"}};
  const Environment batch = join(salloc, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}});
  const Environment pty = join(batch, {{"SLURM_STEP_ID", "0"}, {"SLURM_PTY_PORT", "4000"}});
  const Environment step = join(batch, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  for (const Environment& shell : {salloc, batch, pty, step}) {
    const RankInfo i = find_ranks(shell);
    EXPECT_EQ(i.world, 1);
    EXPECT_THAT(i.str(), AllOf(HasSubstr("one process"), HasSubstr("shell"), HasSubstr("srun")));
  }
  // mpirun within an allocation.
  EXPECT_EQ(find_ranks(join(batch, kOpenMpi)).launcher, Launcher::open_mpi);
}

TEST(Ranks, Kubeflow) {
  const Environment pod{{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  const RankInfo i = find_ranks(pod);
  EXPECT_EQ(i.launcher, Launcher::kubeflow);
  EXPECT_EQ(i.node, 2);
  EXPECT_EQ(i.local_world, 1);
  EXPECT_THAT(message_of<ConfigError>([&] {
                find_ranks(join(pod, {{"PET_NPROC_PER_NODE", "4"}}));
              }),
              HasSubstr("chiron launch"));

  const Environment train{{"PET_NNODES", "2"},
                          {"PET_NPROC_PER_NODE", "1"},
                          {"PET_NODE_RANK", "1"},
                          {"PET_MASTER_ADDR", "node-0"},
                          {"PET_MASTER_PORT", "29500"}};
  EXPECT_THAT(find_ranks(train).str(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("node-0:29500")));
  EXPECT_THAT(message_of<ConfigError>([&] {
                find_ranks(join(train, {{"PET_NPROC_PER_NODE", "4"}}));
              }),
              HasSubstr("chiron launch"));
  EXPECT_EQ(find_ranks({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "1"}, {"PET_NODE_RANK", "0"}}).world, 1);
}

TEST(Ranks, TheMoreSpecificLauncherWinsAndTheOtherIsNamed) {
  const RankInfo i = find_ranks(join(kTorchrun, {{"SLURM_JOB_ID", "7"},
                                                 {"SLURM_STEP_ID", "0"},
                                                 {"SLURM_PROCID", "0"},
                                                 {"SLURM_NTASKS", "1"},
                                                 {"SLURM_LOCALID", "0"}}));
  EXPECT_EQ(i.launcher, Launcher::torchrun);
  EXPECT_THAT(i.why, HasSubstr("SLURM_NTASKS=1 of Slurm is set aside"));
  EXPECT_EQ(find_ranks(join(kTorchrun, kOpenMpi)).launcher, Launcher::torchrun);
  // A lone WORLD_SIZE=1 that some image sets does not hide what started several.
  EXPECT_EQ(find_ranks(join(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}})).launcher,
            Launcher::open_mpi);
  // But torchrun of one rank is what it says, whatever started it.
  EXPECT_EQ(find_ranks(
                join(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"TORCHELASTIC_RUN_ID", "x"}}))
                .world,
            1);
}

TEST(Ranks, FlagsThenOwnVariablesComeFirst) {
  const Environment own = join(kTorchrun, {{"CHIRON_RANK", "1"},
                                           {"CHIRON_WORLD_SIZE", "2"},
                                           {"CHIRON_LOCAL_RANK", "1"},
                                           {"CHIRON_LOCAL_WORLD_SIZE", "2"},
                                           {"CHIRON_JOB", "j"}});
  EXPECT_EQ(find_ranks(own).launcher, Launcher::own);
  EXPECT_EQ(find_ranks(own).job, "j");
  const RankInfo i = find_ranks(own, {.rank = 3, .world = 4, .rendezvous = "h:9"});
  EXPECT_EQ(i.launcher, Launcher::flags);
  EXPECT_THAT(i.str(), AllOf(HasSubstr("rank 3 of 4"), HasSubstr("--rank=3 and --world=4"), HasSubstr("h:9")));
  // One visible GPU for each task changes nothing: which device a local rank takes is the trainer's choice.
  EXPECT_EQ(find_ranks(join(kSrun, {{"CUDA_VISIBLE_DEVICES", "3"}})).local_rank, 2);
}

TEST(Ranks, WhatCannotBeIsRefusedByName) {
  auto said = [](const Environment& e, const RankFlags& f = {}) {
    return message_of<ConfigError>([&] { find_ranks(e, f); });
  };
  EXPECT_THAT(said(join(kTorchrun, {{"RANK", "8"}})), AllOf(HasSubstr("RANK=8"), HasSubstr("WORLD_SIZE=8")));
  EXPECT_THAT(said(join(kTorchrun, {{"RANK", "two"}})), HasSubstr("RANK=two"));
  EXPECT_THAT(said(join(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
  EXPECT_THAT(said(join(kTorchrun, {{"RANK", ""}})), AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("not RANK")));
  EXPECT_THAT(said(join(kTorchrun, {{"LOCAL_RANK", "4"}})), HasSubstr("local rank 4 of 4"));
  EXPECT_THAT(said(join(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})), HasSubstr("of 9 on this node, of 8"));
  EXPECT_THAT(said({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(said({}, {.rank = 2}), AllOf(HasSubstr("--rank"), HasSubstr("--world")));
  EXPECT_THAT(said({}, {.rank = 2, .world = 2}), HasSubstr("--rank=2"));
  EXPECT_THAT(said(join(kSrun, {{"SLURM_JOB_NODELIST", "tux[07-"}})), HasSubstr("tux[07-"));
  for (const char* bad : {"host", "host:", ":5", "host:70000", "host:0", "host:5x", "fe80::1:5"})
    EXPECT_THAT(said(kTorchrun, {.rendezvous = bad}), AllOf(HasSubstr("--rdzv"), HasSubstr("host:port"))) << bad;
}

TEST(Ranks, TheFirstHostOfSlurmsList) {
  for (const auto& [list, host] : std::map<std::string, std::string>{{"tux", "tux"},
                                                                     {"a,b", "a"},
                                                                     {"tux[1-3]", "tux1"},
                                                                     {"tux[007,009-11],x", "tux007"},
                                                                     {"n-1[2-3]", "n-12"},
                                                                     {"r[1-2]n[3-4]", "r1n3"},
                                                                     {"r[1-2][8-9]", "r18"},
                                                                     {"c[01-02].lan,d", "c01.lan"}})
    EXPECT_EQ(first_host(list), host) << list;
  for (const char* bad : {"", "a[", "a[]", "a[x-2]", ",a"})
    EXPECT_THAT(message_of<ConfigError>([&] { first_host(bad); }), HasSubstr("list of nodes")) << bad;
}

}  // namespace
}  // namespace chiron
