#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/json_file.h"
#include "base/temp_dir.h"
#include "io/checkpoint_testing.h"

namespace chiron {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Checkpoints : testing::Test {
  TempDir temp;
  std::string dir = temp / "checkpoints";
  TrainingState state;

  CheckpointInfo save(int64_t step) {
    state.set(step);
    return state.save(dir);
  }
};

TEST_F(Checkpoints, RoundTrip) {
  EXPECT_FALSE(newest_checkpoint(dir).has_value());
  CheckpointInfo info = save(120);
  EXPECT_EQ(info.path, dir + "/step-00000120");
  EXPECT_THAT(list_directory(info.path),
              ElementsAre("COMPLETE", "config.yaml", "manifest.json", "shard-00001-model-00001-of-00001.safetensors",
                          "shard-00001-optimizer-00001-of-00001.safetensors", "trainer_state.json"));
  auto newest = newest_checkpoint(dir);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->path, info.path);
  EXPECT_EQ(newest->step, 120);
  Checkpoint checkpoint(info.path);
  EXPECT_EQ(checkpoint.step(), 120);
  EXPECT_EQ(checkpoint.state()["step"], 120);
  EXPECT_EQ(checkpoint.extra("config.yaml"), "step: 120\n");
  EXPECT_FALSE(checkpoint.has_extra("tune.json"));
  EXPECT_THAT(message_of<DataError>([&] { checkpoint.extra("tune.json"); }), HasSubstr("no tune.json"));
  EXPECT_THAT(checkpoint.names(), ElementsAre("c_attn.weight", "exp_avg.c_attn.weight", "ln.weight", "scale"));
  EXPECT_EQ(checkpoint.shape("c_attn.weight"), (Shape{5, 12}));
  EXPECT_TRUE(state.equals(checkpoint));
  state.set(121);
  EXPECT_FALSE(state.equals(checkpoint));
}

TEST_F(Checkpoints, AShardThatIsCutShortWhileItIsReadIsNamed) {
  const CheckpointInfo info = save(1);
  Checkpoint checkpoint(info.path);
  const std::string shard = info.path + "/shard-00001-model-00001-of-00001.safetensors";
  ASSERT_EQ(::truncate(shard.c_str(), file_size(shard) - 100), 0);
  EXPECT_THAT(message_of<IoError>([&] { state.equals(checkpoint); }),
              AllOf(HasSubstr(shard), HasSubstr("something has cut it short")));
}

TEST_F(Checkpoints, LayoutOfPyTorchsReader) {
  CheckpointInfo info = save(1);
  SafetensorsFile model(info.path + "/shard-00001-model-00001-of-00001.safetensors");
  EXPECT_EQ(model.metadata().at("format"), "pt");
  EXPECT_EQ(model.metadata().at("DCP_VERSION"), "1.0");
  json sharding = parse_json(model.metadata().at("DCP_SHARDING_INFO"), "info");
  EXPECT_EQ(sharding["c_attn.weight"]["saved_offsets"], json({0, 0}));
  EXPECT_EQ(sharding["scale"]["saved_offsets"], json::array());
  EXPECT_EQ(sharding.size(), 3u);
}

TEST_F(Checkpoints, NewestWholeOneWinsAndReasonsAreGiven) {
  save(9);
  save(10);
  save(100);
  remove_file(dir + "/step-00000100/COMPLETE");
  save(101);
  remove_file(dir + "/step-00000101/trainer_state.json");
  save(102);
  std::string shard = dir + "/step-00000102/shard-00001-model-00001-of-00001.safetensors";
  std::string text = read_file(shard);
  write_file(shard, text.substr(0, text.size() - 1));
  make_directories(dir + "/.saving-step-00000300");
  make_directories(dir + "/step-3");
  make_directories(dir + "/step-99999999999999999999");
  save(103);
  rename_path(dir + "/step-00000103", dir + "/step-00000104");
  std::vector<std::string> skipped;
  auto newest = newest_checkpoint(dir, &skipped);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, 10);
  EXPECT_THAT(skipped, ElementsAre(HasSubstr("COMPLETE is missing"), HasSubstr("trainer_state.json is missing"),
                                   HasSubstr("model-00001-of-00001.safetensors: "), HasSubstr("another step")));
  EXPECT_THAT(skipped[2], HasSubstr(fmt::format("{} bytes, the manifest says {}", text.size() - 1, text.size())));
}

TEST_F(Checkpoints, NamesThatDoNotFitAreListed) {
  save(1);
  Checkpoint checkpoint(dir + "/step-00000001");
  std::vector<std::string> names = checkpoint.names();
  EXPECT_EQ(message_of<DataError>([&] { checkpoint.check_names(names); }), "no error");
  names.erase(names.begin());
  names.push_back("lm_head.weight");
  EXPECT_THAT(message_of<DataError>([&] { checkpoint.check_names(names); }),
              AllOf(HasSubstr("step-00000001"), HasSubstr("missing: lm_head.weight"),
                    HasSubstr("not asked for: c_attn.weight")));
  std::vector<float> x(60);
  View view{reinterpret_cast<uintptr_t>(x.data()), DType::f32, {12, 5}};
  StatePart part{"c_attn.weight", Rows(view), false, {{0, 0}, {12, 5}}, {12, 5}};
  EXPECT_THAT(message_of<DataError>([&] { checkpoint.read(part); }), HasSubstr("(5, 12), expected (12, 5)"));
  part.name = "none";
  EXPECT_THAT(message_of<DataError>([&] { checkpoint.read(part); }), HasSubstr("no tensor none"));
}

TEST_F(Checkpoints, SavedByThreeRanksReadByTwo) {
  // A (10, 6) matrix cut by rows 0-3, 4-7, 8-9, a replicated vector, and one more that has a hole.
  std::vector<float> w(60), norm = {1, 2, 3}, back(60, -1);
  for (size_t i = 0; i < 60; ++i) w[i] = static_cast<float>(i);
  auto rows = [&](std::vector<float>& v, int64_t begin, int64_t end, const char* name = "w") {
    View view{reinterpret_cast<uintptr_t>(v.data()), DType::f32, {10, 6}};
    return StatePart{name, Rows(view.slice(begin, end)), false, {{begin, 0}, {end - begin, 6}}, {10, 6}};
  };
  StatePart vector{
      "norm", Rows(View{reinterpret_cast<uintptr_t>(norm.data()), DType::f32, {3}}), false, {{0}, {3}}, {3}};
  CheckpointInfo info;
  {
    CheckpointSave save(dir, 7);
    std::vector<FileRecord> shards;
    for (int rank = 0; rank < 3; ++rank) {
      int64_t begin = 4 * rank, end = std::min(begin + 4, int64_t{10});
      std::vector<StatePart> parts = {rows(w, begin, end), vector};
      if (rank != 1) parts.push_back(rows(w, begin, end, "hole"));
      shards.push_back(write_shards(save.folder(), "model", rank, parts).at(0));
    }
    EXPECT_EQ(shards[2].name, "shard-00003-model-00001-of-00001.safetensors");
    info = save.commit(shards, json{{"step", 7}}, {});
  }
  Checkpoint checkpoint(info.path);
  checkpoint.read(rows(back, 0, 5));
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(back[i], i < 30 ? w[i] : -1);
  checkpoint.read(rows(back, 5, 10));
  EXPECT_EQ(back, w);
  std::vector<float> square(6);
  View view{reinterpret_cast<uintptr_t>(square.data()), DType::f32, {3, 2}};
  checkpoint.read({"w", Rows(view), false, {{3, 4}, {3, 2}}, {10, 6}});
  EXPECT_THAT(square, ElementsAre(22, 23, 28, 29, 34, 35));
  norm = {0, 0, 0};
  checkpoint.read(vector);
  EXPECT_THAT(norm, ElementsAre(1, 2, 3));
  checkpoint.read(rows(back, 8, 10, "hole"));
  EXPECT_THAT(message_of<DataError>([&] { checkpoint.read(rows(back, 0, 10, "hole")); }),
              AllOf(HasSubstr("tensor hole"), HasSubstr("36 of the 60")));
}

/// Rows and columns of a (6, 4) matrix of 0, 1, 2, ...
struct CheckpointCuts : Checkpoints {
  std::vector<float> w = std::vector<float>(24);
  CheckpointCuts() {
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i);
  }
  StatePart part(std::vector<float>& v, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    const Rows all(View{reinterpret_cast<uintptr_t>(v.data()), DType::f32, {6, 4}});
    return {"w", all.slice(row, row + rows).columns(col, cols), false, {{row, col}, {rows, cols}}, {6, 4}};
  }
  CheckpointInfo save_ranks(const std::vector<std::vector<StatePart>>& ranks) {
    CheckpointSave save(dir, 1);
    std::vector<FileRecord> shards;
    for (size_t r = 0; r < ranks.size(); ++r)
      for (FileRecord& f : write_shards(save.folder(), "model", static_cast<int>(r), ranks[r]))
        shards.push_back(std::move(f));
    return save.commit(shards, json::object(), {});
  }
  void expect_whole(const std::string& path) {
    std::vector<float> back(24, -1);
    Checkpoint(path).read(part(back, 0, 6, 0, 4));
    EXPECT_EQ(back, w);
  }
};

TEST_F(CheckpointCuts, PartsThatAreNoBoxGoToSeveralFiles) {
  const auto info = save_ranks({{part(w, 0, 2, 0, 4), part(w, 4, 2, 0, 4)}, {part(w, 2, 2, 0, 4)}, {}});
  EXPECT_THAT(list_directory(info.path),
              ElementsAre("COMPLETE", "manifest.json", "shard-00001-model-00001-of-00002.safetensors",
                          "shard-00001-model-00002-of-00002.safetensors",
                          "shard-00002-model-00001-of-00001.safetensors", "trainer_state.json"));
  expect_whole(info.path);
  // Tiles in any order are one box.
  expect_whole(save_ranks({{part(w, 0, 2, 0, 1), part(w, 2, 4, 1, 3), part(w, 2, 4, 0, 1), part(w, 0, 2, 1, 3)}}).path);
  EXPECT_EQ(list_directory(newest_checkpoint(dir)->path).size(), 4u);
}

TEST_F(CheckpointCuts, CopiesAreFineAndOverlapsAreNot) {
  expect_whole(save_ranks({{part(w, 0, 3, 0, 4)}, {part(w, 3, 3, 0, 4)}, {part(w, 0, 3, 0, 4)}}).path);
  for (const auto& [a, b] :
       {std::pair{part(w, 0, 4, 0, 4), part(w, 2, 4, 0, 4)}, std::pair{part(w, 0, 6, 0, 3), part(w, 2, 1, 2, 2)}}) {
    const auto info = save_ranks({{a}, {b}});
    EXPECT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(info.path); }),
                AllOf(HasSubstr("shard-00001-model"), HasSubstr("shard-00002-model"), HasSubstr("elements of w")));
  }
}

TEST_F(CheckpointCuts, ShardsOfAnotherSaveAreFoundBySomeRank) {
  const auto info = save_ranks({{part(w, 0, 3, 0, 4)}, {part(w, 3, 3, 0, 4)}});
  const std::string file = info.path + "/shard-00002-model-00001-of-00001.safetensors";
  for (float& x : w) x += 1;
  const std::string other =
      save_ranks({{part(w, 0, 3, 0, 4)}, {part(w, 3, 3, 0, 4)}}).path + file.substr(file.rfind('/'));
  const std::string bytes = read_file(other);
  for (float& x : w) x -= 1;
  const std::string again = save_ranks({{part(w, 0, 3, 0, 4)}, {part(w, 3, 3, 0, 4)}}).path;
  const std::string mixed = again + file.substr(file.rfind('/'));
  write_file(mixed, bytes);
  EXPECT_EQ(message_of([&] { Checkpoint(again, 0, 2); }), "no error") << "this rank hashes the other shard";
  for (const auto& [share, shares] : {std::pair{0, 1}, std::pair{1, 2}})
    EXPECT_THAT(message_of<DataError>([&] { Checkpoint(again, share, shares); }),
                AllOf(HasSubstr(mixed), HasSubstr("damaged")));
  remove_file(mixed);
  for (const int share : {0, 1})
    EXPECT_THAT(message_of<DataError>([&] { Checkpoint(again, share, 2); }), HasSubstr(mixed + " is missing"));
}

TEST_F(Checkpoints, SavingAStepAgainReplacesIt) {
  save(5);
  state.set(6);
  state.step = 5;
  CheckpointInfo info = state.save(dir);
  EXPECT_EQ(newest_checkpoint(dir)->path, info.path);
  EXPECT_TRUE(state.equals(Checkpoint(info.path)));
  EXPECT_EQ(find_checkpoints(dir).whole.size(), 1u);
  state.set(8);
  state.step = 5;
  EXPECT_EQ(state.save(dir).step, 5);
  EXPECT_TRUE(state.equals(Checkpoint(newest_checkpoint(dir)->path)));
  EXPECT_THAT(list_directory(dir), ElementsAre(".lock", testing::StartsWith("step-00000005")));
}

TEST_F(Checkpoints, ABrokenOneOfTheSameStepMakesWay) {
  save(5);
  remove_file(dir + "/step-00000005/COMPLETE");
  EXPECT_EQ(save(5).path, dir + "/step-00000005");
  EXPECT_TRUE(state.equals(Checkpoint(dir + "/step-00000005")));
}

TEST_F(Checkpoints, EveryFlippedByteIsFound) {
  CheckpointInfo info = save(3);
  for (const std::string& name : list_directory(info.path)) {
    std::string path = info.path + "/" + name, text = read_file(path);
    for (size_t i = 0; i < text.size(); ++i) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      remove_file(path);
      FileWriter out(path);
      out.write(damaged);
      out.close();
      ASSERT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(info.path); }),
                  AllOf(HasSubstr(info.path), HasSubstr(name)))
          << i;
    }
    for (const std::string& other : {text + "x", text.substr(0, text.size() - 1), std::string()}) {
      write_file(path, other);
      ASSERT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(info.path); }), HasSubstr(name));
    }
    remove_file(path);
    ASSERT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(info.path); }), HasSubstr(name));
    write_file(path, text);
  }
  EXPECT_TRUE(state.equals(Checkpoint(info.path)));
}

TEST_F(Checkpoints, FilesThatAreNoCheckpoint) {
  EXPECT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(dir); }), HasSubstr("no checkpoint folder"));
  make_directories(dir);
  EXPECT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(dir); }), HasSubstr("COMPLETE is missing"));
  std::string manifest = R"({"format_version": 2, "step": 1, "files": {}})";
  write_file(dir + "/manifest.json", manifest);
  write_file(dir + "/COMPLETE", fmt::format("manifest.json xxh3_128 {}\n", hash128(manifest).hex()));
  EXPECT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(dir); }), HasSubstr("format_version is 2"));
  manifest = R"({"format_version": 1, "step": 1, "files": {"../x": {"size": 1, "xxh3_128": ""}}})";
  write_file(dir + "/manifest.json", manifest);
  write_file(dir + "/COMPLETE", fmt::format("manifest.json xxh3_128 {}\n", hash128(manifest).hex()));
  EXPECT_THAT(message_of<DataError>([&] { Checkpoint checkpoint(dir); }), HasSubstr("../x"));
}

TEST_F(Checkpoints, PruneKeepsTheNewest) {
  EXPECT_THAT(prune_checkpoints(dir, 2), IsEmpty());
  for (int64_t step : {1, 2, 3, 4}) save(step);
  remove_file(dir + "/step-00000001/COMPLETE");
  save(5);
  remove_file(dir + "/step-00000005/COMPLETE");
  make_directories(dir + "/.saving-step-00000006");
  make_directories(dir + "/.removing-step-00000000/sub");
  EXPECT_THAT(prune_checkpoints(dir, 2), ElementsAre(dir + "/step-00000001", dir + "/step-00000002"));
  EXPECT_THAT(list_directory(dir), ElementsAre(".lock", "step-00000003", "step-00000004", "step-00000005"));
  EXPECT_THAT(prune_checkpoints(dir, 7), IsEmpty());
  for (int64_t many : {(int64_t{1} << 32) + 1, std::numeric_limits<int64_t>::max()})
    EXPECT_THAT(prune_checkpoints(dir, many), IsEmpty()) << many;
  EXPECT_THAT(prune_checkpoints(dir, 0), ElementsAre(dir + "/step-00000003"));
  EXPECT_THAT(prune_checkpoints(dir, -3), IsEmpty());
  EXPECT_TRUE(newest_checkpoint(dir).has_value()) << "the last whole one is never removed";
}

TEST_F(Checkpoints, PruneLeavesARunningSaveAlone) {
  save(1);
  save(2);
  CheckpointSave running(dir, 3);
  EXPECT_THAT(prune_checkpoints(dir, 1), IsEmpty());
  EXPECT_TRUE(directory_exists(running.folder()));
  EXPECT_EQ(newest_checkpoint(dir)->step, 2);
  running.commit({}, json::object(), {});
  EXPECT_EQ(newest_checkpoint(dir)->step, 3);
}

TEST_F(Checkpoints, AReaderAlwaysFindsOneWhileARunSavesAndPrunes) {
  save(0);
  std::jthread run([&](std::stop_token stop) {
    for (int64_t step = 1; !stop.stop_requested(); ++step) {
      save(step);
      prune_checkpoints(dir, 1);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> skipped;
    ASSERT_TRUE(newest_checkpoint(dir, &skipped)) << i;
    ASSERT_THAT(skipped, IsEmpty());
  }
}

TEST_F(Checkpoints, AnAbandonedSaveLeavesNothing) {
  save(1);
  { CheckpointSave abandoned(dir, 2); }
  EXPECT_THAT(list_directory(dir), ElementsAre(".lock", "step-00000001"));
}

TEST_F(Checkpoints, OurOwnMistakes) {
  state.set(1);
  EXPECT_THROW(save_checkpoint(dir, 1, state.model, state.model, json::object()), Bug);
  EXPECT_THROW(save_checkpoint(dir, 1, state.model, state.optimizer, json::object(), {{"../x", ""}}), Bug);
  EXPECT_THROW(save_checkpoint(dir, 1, state.model, state.optimizer, json::object(), {{"COMPLETE", ""}}), Bug);
  EXPECT_FALSE(newest_checkpoint(dir).has_value());
}

}  // namespace
}  // namespace chiron
