// The reference models made by tests/golden/make_golden.py with PyTorch and transformers.

#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "train/check.h"

namespace chiron {
namespace {

using testing::HasSubstr;

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, AgreesWithTheReference) {
  const std::string folder = std::string(CHIRON_SOURCE_DIR "/tests/golden/") + GetParam();
  ThreadPool pool(2);
  Stream s({}, pool);
  Log log;
  size_t compared = 0;
  for (const Comparison& r : check_model(s, folder, folder + "/expected.safetensors", 0, log)) {
    EXPECT_TRUE(r.passed()) << r.name << ": " << r.error << " > " << r.allowed;
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

/// What check_model says of a dump in which one tensor has another shape, with no element more or less if it has any.
std::string told_of(const std::string& name, const std::vector<int64_t>& shape) {
  const std::string folder = CHIRON_SOURCE_DIR "/tests/golden/gpt2";
  TempDir dir;
  const std::string text = read_file(folder + "/expected.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, text.data(), sizeof size);
  auto header = nlohmann::json::parse(text.substr(8, size));
  std::string data = text.substr(8 + size);
  auto& entry = header[name];
  int64_t numel = 1;
  for (int64_t n : shape) numel *= n;
  if (numel == 0) {  // without its bytes
    const int64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    data.erase(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    for (auto& [other, value] : header.items())
      for (auto& offset : value["data_offsets"])
        if (offset >= end) offset = offset.get<int64_t>() - (end - begin);
  }
  entry["shape"] = shape;
  std::string changed = header.dump();
  size = changed.size();
  write_file(dir / "dump", std::string(reinterpret_cast<const char*>(&size), sizeof size) + changed + data);
  ThreadPool pool(1);
  Stream s({}, pool);
  Log log(LogLevel::error);
  return message_of<DataError>([&] { check_model(s, folder, dir / "dump", 0, log); });
}

TEST(CheckedDumps, ShapesAreCompared) {
  EXPECT_THAT(told_of("logits", {24, 2, 131}),
              HasSubstr("logits has the shape (24, 2, 131), the model's (2, 24, 131)"));
  EXPECT_THAT(told_of("loss", {1}), HasSubstr("loss has the shape (1), the model's ()"));
  EXPECT_THAT(told_of("step_loss", {3, 1}), HasSubstr("step_loss has the shape (3, 1), the model's (3)"));
  for (const char* kind : {"grad.", "after."})
    EXPECT_THAT(told_of(std::string(kind) + "transformer.wte.weight", {48, 131}),
                HasSubstr("transformer.wte.weight has the shape (48, 131), the model's (131, 48)"));
  for (const char* name : {"input_ids", "labels"})
    for (const auto& shape : {std::vector<int64_t>{2, 0}, {0, 24}})
      EXPECT_THAT(told_of(name, shape), HasSubstr(std::string(name) + " is I64 "));
  EXPECT_THAT(told_of("logits", {2, 24, 131}), HasSubstr("no error"));
}

INSTANTIATE_TEST_SUITE_P(Folders, Golden, testing::Values("gpt2", "llama", "llama3_rope_tied"));

}  // namespace
}  // namespace chiron
