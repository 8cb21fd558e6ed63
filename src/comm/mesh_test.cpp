#include "comm/mesh.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error_testing.h"
#include "comm/comm_testing.h"
#include "comm/thread_ranks.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Mesh, WhatIsNotSaidIsDataParallel) {
  EXPECT_EQ(fit_mesh({}, 8).dp, 8);
  EXPECT_EQ(fit_mesh({}, 8).shard, 8);
  const MeshSizes s = fit_mesh({.tp = 2, .pp = 2}, 8);
  EXPECT_EQ(s.dp, 2);
  EXPECT_EQ(s.str(), "tp 2 x dp 2 x pp 2");
  EXPECT_EQ(fit_mesh({.dp = 4, .shard = 2}, 4).str(), "dp 4 x sharded over 2");
  EXPECT_EQ(fit_mesh({}, 1).str(), "one rank");
}

TEST(Mesh, SizesThatDoNotFitSayWhichWould) {
  auto said = [](MeshSizes s, int world) { return message_of<ConfigError>([&] { fit_mesh(s, world); }); };
  EXPECT_EQ(said({.tp = 3}, 8),
            "parallel: tp 3 makes a multiple of 3 ranks, but there are 8: start 6 or 9 ranks; or set tp to 1, 2, 4, 8");
  EXPECT_EQ(said({.tp = 2, .dp = 3}, 8),
            "parallel: tp 2 x dp 3 makes 6 ranks, but there are 8: start 6 ranks; or set dp to 4");
  EXPECT_THAT(said({.pp = 4}, 1), AllOf(HasSubstr("but there is 1: start 4 ranks"), HasSubstr("set pp to 1")));
  EXPECT_THAT(said({.dp = 4, .shard = 3}, 4), HasSubstr("what divides them: 1, 2, 4"));
  EXPECT_THAT(said({.cp = 0}, 4), HasSubstr("cp is 0"));
  EXPECT_THAT(said({.tp = 1 << 30, .pp = 1 << 30}, 4), HasSubstr("more ranks than there can be"));
}

TEST(Mesh, RanksAndCoordinatesAreInverse) {
  const MeshSizes sizes = fit_mesh({.tp = 2, .cp = 3, .dp = 4, .shard = 2, .pp = 2}, 48);
  const MeshShape shape(sizes);
  EXPECT_EQ(shape.size(Axis::dp), 4);
  EXPECT_EQ(shape.size(Axis::data), 12);
  for (int rank = 0; rank < 48; ++rank) {
    // tp is innermost, pp outermost.
    EXPECT_EQ(shape.index(Axis::tp, rank), rank % 2);
    EXPECT_EQ(shape.index(Axis::cp, rank), rank / 2 % 3);
    EXPECT_EQ(shape.index(Axis::dp, rank), rank / 6 % 4);
    EXPECT_EQ(shape.index(Axis::shard, rank), rank / 6 % 2);
    EXPECT_EQ(shape.index(Axis::pp, rank), rank / 24);
    EXPECT_EQ(shape.index(Axis::all, rank), rank);
    for (const Axis axes : {Axis::tp, Axis::data, Axis::tp | Axis::pp, Axis::replica, Axis::none}) {
      EXPECT_EQ(shape.at(axes, shape.index(axes, rank), rank), rank);
      std::set<int> group;
      for (int i = 0; i < shape.size(axes); ++i) {
        const int other = shape.at(axes, i, rank);
        EXPECT_EQ(shape.index(axes, other), i);
        group.insert(other);
      }
      EXPECT_EQ(static_cast<int>(group.size()), shape.size(axes));
    }
  }
}

TEST(Mesh, GroupsJoinTheRanksOfTheirAxes) {
  run_thread_ranks(8, [](Communicator& world) {
    TestRank t;
    Mesh mesh(world, {.tp = 2, .cp = 2});
    EXPECT_EQ(mesh.sizes().dp, 2);
    for (const Axis axes : {Axis::tp, Axis::cp, Axis::dp, Axis::data, Axis::all, Axis::tp | Axis::dp}) {
      Communicator& group = mesh.group(axes);
      EXPECT_EQ(group.size(), mesh.size(axes));
      EXPECT_EQ(group.rank(), mesh.index(axes));
      std::vector<int32_t> want;
      for (int i = 0; i < group.size(); ++i) want.push_back(mesh.shape().at(axes, i, world.rank()));
      DeviceArray<int32_t> mine(t.s, {world.rank()}), all(t.s, std::vector<int32_t>(want.size()));
      group.all_gather(t.s, all.tensor(), mine.tensor());
      EXPECT_EQ(all.read(), want) << name_of(axes);
    }
    EXPECT_EQ(mesh.group(Axis::data).name(), "cp+dp");
    EXPECT_EQ(mesh.group(Axis::dp).name(), "dp");
    EXPECT_EQ(&mesh.group(Axis::dp), &mesh.group(Axis::shard));
    EXPECT_EQ(mesh.group(Axis::pp).size(), 1);
    EXPECT_EQ(mesh.group(Axis::replica).size(), 1);
    if (world.rank() == 5) {
      EXPECT_EQ(mesh.str(), "tp 2 x cp 2 x dp 2: rank 5 is tp 1, cp 0, dp 1");
    }
  });
}

TEST(Mesh, APlannedMeshIsAsARealOne) {
  Mesh mesh = Mesh::planned({.tp = 8, .dp = 64, .shard = 8, .pp = 4}, 2048, 1234);
  EXPECT_EQ(mesh.group(Axis::tp).size(), 8);
  EXPECT_EQ(mesh.group(Axis::shard).size(), 8);
  EXPECT_EQ(mesh.group(Axis::dp).rank(), mesh.index(Axis::dp));
  EXPECT_EQ(mesh.group(Axis::shard).name(), "shard");
  Stream dry = Stream::dry({});
  mesh.group(Axis::pp).all_reduce(dry, {256, DType::f32, {4}}, Reduce::sum);
  EXPECT_THAT(message_of<ConfigError>([] { Mesh::planned({.tp = 3}, 8, 0); }), HasSubstr("start 6 or 9"));
}

TEST(Mesh, SizesThatDoNotFitAreRefusedBeforeAnythingMoves) {
  EXPECT_THAT(message_of<ConfigError>([] {
                run_thread_ranks(4, [](Communicator& world) {
                  try {
                    Mesh mesh(world, {.tp = 3});
                  } catch (const ConfigError&) {
                    EXPECT_EQ(world.recent_calls(), "");
                    throw;
                  }
                });
              }),
              HasSubstr("start 3 or 6 ranks"));
}

}  // namespace
}  // namespace chiron
