#include "io/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "io/box_copy.h"

namespace chiron {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string golden(const std::string& name) { return std::string(CHIRON_SOURCE_DIR) + "/tests/golden/" + name; }

struct Model {
  std::vector<std::vector<float>> values;
  std::vector<StatePart> parts;

  void add(const std::string& name, Shape shape) {
    std::vector<float>& v = values.emplace_back(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i) * 0.5f + static_cast<float>(values.size());
    View view{reinterpret_cast<uintptr_t>(v.data()), DType::f32, shape};
    parts.push_back({name, Rows(view), false, whole(shape), shape});
  }
};

struct HfFolders : testing::Test {
  TempDir dir;
  Model model;
  std::string path = dir / "model";

  HfFolders() {
    model.add("wte.weight", {6, 4});
    model.add("h.0.w", {4, 4});
    model.add("h.0.b", {4});
    model.add("ln.w", {4});
  }
  void write(const HfWriteOptions& options = {}) {
    write_hf_folder(path, {{"model_type", "gpt2"}, {"n_embd", 4}}, {{"eos_token_id", 0}}, model.parts, options);
  }
  void TearDown() override { set_file_faults({}); }

  void expect_same(const HfFolder& folder, float tolerance = 0) {
    for (size_t i = 0; i < model.parts.size(); ++i) {
      std::vector<float> back(model.values[i].size());
      StatePart part = model.parts[i];
      part.data.at = reinterpret_cast<uintptr_t>(back.data());
      folder.read(part);
      for (size_t k = 0; k < back.size(); ++k) EXPECT_NEAR(back[k], model.values[i][k], tolerance * back[k]);
    }
  }
};

TEST_F(HfFolders, OneFile) {
  write({.extra = {{"tokenizer.json", "{}"}}});
  EXPECT_THAT(list_directory(path),
              ElementsAre("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("model"));
  HfFolder folder(path);
  EXPECT_EQ(folder.config().integer("n_embd"), 4);
  ASSERT_NE(folder.generation_config(), nullptr);
  EXPECT_EQ(folder.generation_config()->integer("eos_token_id"), 0);
  EXPECT_THAT(folder.names(), ElementsAre("h.0.b", "h.0.w", "ln.w", "wte.weight"));
  expect_same(folder);
}

TEST_F(HfFolders, SeveralFilesAndNarrowTypes) {
  for (int64_t max : {1, 80, 130, 1000}) {
    remove_tree(path);
    write({.max_file_bytes = max});
    HfFolder folder(path);
    expect_same(folder);
    size_t files = list_directory(path).size();
    EXPECT_EQ(files, max == 1 ? 7u : max == 80 ? 6u : max == 130 ? 5u : 3u) << max;
  }
  remove_tree(path);
  write({.as = DType::bf16, .max_file_bytes = 60});
  HfFolder folder(path);
  EXPECT_EQ(folder.find("h.0.w")->type, "BF16");
  expect_same(folder, 0.005f);
  json index = parse_json(read_file(path + "/model.safetensors.index.json"), "index");
  EXPECT_EQ(index["metadata"]["total_size"], 2 * (24 + 16 + 4 + 4));
  EXPECT_EQ(index["weight_map"]["wte.weight"], "model-00001-of-00002.safetensors");
}

TEST_F(HfFolders, PrefixesComeAndGo) {
  model.add("transformer.x", {2});
  write();
  HfFolder folder(path);
  EXPECT_NE(folder.find("transformer.wte.weight", "transformer."), nullptr);
  EXPECT_NE(folder.find("wte.weight", "transformer."), nullptr);
  EXPECT_NE(folder.find("x", "transformer."), nullptr);
  EXPECT_EQ(folder.find("x"), nullptr);
  EXPECT_EQ(folder.find("transformer.wte.weight"), nullptr);
  EXPECT_EQ(folder.find("none", "transformer."), nullptr);
  std::vector<float> x(2);
  StatePart part = model.parts.back();
  part.name = "x";
  part.data.at = reinterpret_cast<uintptr_t>(x.data());
  folder.read(part, "transformer.");
  EXPECT_EQ(x, model.values.back());
  EXPECT_THAT(message_of([&] { folder.read(part); }), AllOf(HasSubstr(path), HasSubstr("no tensor x")));

  remove_tree(path);
  model.add("x", {2});
  write();
  HfFolder both(path);
  EXPECT_THAT(message_of([&] { both.find("x", "transformer."); }), HasSubstr("both x and transformer.x"));
}

TEST_F(HfFolders, AFileThatIsCutShortWhileItIsReadIsNamed) {
  write();
  HfFolder folder(path);
  ASSERT_EQ(::truncate((path + "/model.safetensors").c_str(), 100), 0);
  EXPECT_THAT(message_of<IoError>([&] { folder.read(model.parts.front()); }),
              AllOf(HasSubstr(path + "/model.safetensors"), HasSubstr("something has cut it short")));
}

TEST_F(HfFolders, BrokenFolders) {
  EXPECT_THAT(message_of([&] { HfFolder folder(dir / "none"); }), HasSubstr("none is no folder"));
  EXPECT_THAT(message_of([&] { HfFolder folder(dir.path()); }), HasSubstr("no config.json"));
  write_file(dir / "config.json", "{}");
  EXPECT_THAT(message_of([&] { HfFolder folder(dir.path()); }), HasSubstr("neither model.safetensors nor"));
  write_file(dir / "config.json", "[]");
  EXPECT_THAT(message_of([&] { HfFolder folder(dir.path()); }), HasSubstr("config.json: the top level is []"));
}

TEST_F(HfFolders, IndexAndFilesThatDisagree) {
  write({.max_file_bytes = 100});
  std::string index_path = path + "/model.safetensors.index.json";
  const json good = parse_json(read_file(index_path), "index");
  auto with = [&](const std::function<void(json&)>& change) {
    json index = good;
    change(index);
    write_file(index_path, index.dump());
    return message_of([&] { HfFolder folder(path); });
  };
  EXPECT_EQ(with([](json&) {}), "no error");
  EXPECT_THAT(with([](json& j) { j["weight_map"]["ghost"] = j["weight_map"]["ln.w"]; }),
              AllOf(HasSubstr("index.json"), HasSubstr("ghost (model-0000")));
  EXPECT_THAT(with([](json& j) { j["weight_map"]["wte.weight"] = j["weight_map"]["ln.w"]; }),
              AllOf(HasSubstr("not in the file named"), HasSubstr("wte.weight")));
  EXPECT_THAT(with([](json& j) { j["weight_map"]["ghost"] = "model-00009-of-00002.safetensors"; }),
              AllOf(HasSubstr("model-00009"), HasSubstr("missing")));
  EXPECT_THAT(with([](json& j) { j["weight_map"].erase("ln.w"); }), AllOf(HasSubstr("not listed"), HasSubstr("ln.w")));
  EXPECT_THAT(with([](json& j) { j["weight_map"]["ghost"] = "../x.safetensors"; }), HasSubstr("../x.safetensors"));
  EXPECT_THAT(with([](json& j) { j["weight_map"]["ghost"] = 3; }), HasSubstr("weight_map.ghost is 3"));
  EXPECT_THAT(with([](json& j) { j.erase("weight_map"); }), HasSubstr("weight_map is missing"));
  EXPECT_THAT(with([](json& j) { j["weight_map"] = {"a"}; }), HasSubstr("weight_map is [\"a\"]"));
}

TEST_F(HfFolders, WritingNeverTouchesWhatIsThere) {
  write();
  std::string before = read_file(path + "/model.safetensors");
  EXPECT_THAT(message_of([&] { write(); }), AllOf(HasSubstr(path), HasSubstr("not empty")));
  EXPECT_EQ(read_file(path + "/model.safetensors"), before);
  write_file(dir / "file", "x");
  path = dir / "file";
  EXPECT_THAT(message_of([&] { write(); }), HasSubstr("is a file"));
  path = dir / "a/b/";
  write();
  EXPECT_NO_THROW(HfFolder(dir / "a/b"));
  make_directories(dir / "empty");
  path = dir / "empty";
  write();
  EXPECT_NO_THROW(HfFolder(dir / "empty"));
}

TEST_F(HfFolders, FullDiskLeavesNothing) {
  set_file_faults({});
  write({.max_file_bytes = 100});
  const int64_t operations = file_operations();
  remove_tree(path);
  for (int64_t n = 1; n < operations; ++n) {
    set_file_faults({.fail_at = n, .lasting = true});
    EXPECT_THAT(message_of([&] { write({.max_file_bytes = 100}); }),
                AllOf(HasSubstr(path.substr(0, path.size() - 5)), HasSubstr("disk is full")));
    set_file_faults({});
    EXPECT_THAT(list_directory(dir.path()), IsEmpty()) << n;
  }
}

TEST(HfGolden, RealFoldersOpen) {
  for (const char* name : {"gpt2", "llama", "llama3_rope_tied"}) {
    HfFolder folder(golden(name));
    EXPECT_EQ(folder.config().integer("vocab_size"), 131);
    ASSERT_NE(folder.generation_config(), nullptr);
    bool gpt2 = folder.config().text("model_type") == "gpt2";
    EXPECT_NE(folder.find(gpt2 ? "wte.weight" : "model.embed_tokens.weight", "transformer."), nullptr);
  }
  EXPECT_EQ(HfFolder(golden("llama3_rope_tied")).config().object("rope_parameters").text("rope_type"), "llama3");
}

}  // namespace
}  // namespace chiron
