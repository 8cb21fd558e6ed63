#include "data/token_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "data/testing.h"

namespace chiron {
namespace {

using test::expect_data_error;
using ::testing::HasSubstr;

TokenFileInfo info_of(int64_t vocab = 1000) {
  TokenFileInfo info;
  info.text_bytes = 77;
  info.vocab_size = vocab;
  info.vocabulary_hash = std::string(32, 'a');
  info.tokenizer = "byte";
  return info;
}

std::vector<int32_t> random_tokens(size_t n, int vocab) {
  std::mt19937 rng(1);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % static_cast<unsigned>(vocab));
  return tokens;
}

void put(const std::string& path, std::string_view content) {
  FileWriter file(path);
  file.write(content);
  file.close();
}

void change_byte(const std::string& path, int64_t at, char xor_with = 1) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  char c = static_cast<char>(file.get() ^ xor_with);
  file.seekp(at);
  file.put(c);
}

TEST(TokenFile, RoundTrip) {
  TempDir dir;
  for (int vocab : {256, 65536, 65537, 200000})
    for (size_t n : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}}) {
      std::string path = dir / "t.bin";
      std::vector<int32_t> tokens = random_tokens(n, vocab);
      if (n) tokens[0] = vocab - 1;
      std::vector<int64_t> starts;
      for (size_t i = 0; i < n; i += 3) starts.push_back(static_cast<int64_t>(i));
      TokenFileInfo wrote = write_token_file(path, info_of(vocab), tokens, starts);
      TokenFile file(path);
      EXPECT_EQ(file.info().tokens, static_cast<int64_t>(n));
      EXPECT_EQ(file.info().token_bytes(), vocab > 65536 ? 4 : 2);
      EXPECT_EQ(file.info().text_bytes, 77);
      EXPECT_EQ(file.info().vocab_size, vocab);
      EXPECT_EQ(file.info().tokenizer, "byte");
      EXPECT_EQ(file.info().vocabulary_hash, std::string(32, 'a'));
      EXPECT_EQ(file.info().checksum, wrote.checksum);
      for (int64_t at = -1, i = 0; i <= std::ssize(starts); at = file.next_start(at), ++i)
        ASSERT_EQ(file.next_start(at), i < std::ssize(starts) ? starts[static_cast<size_t>(i)] : file.info().tokens);
      std::vector<int32_t> read(n);
      file.read(0, read);
      EXPECT_EQ(read, tokens);
      file.verify();
    }
}

TEST(TokenFile, EveryTruncationIsFound) {
  TempDir dir;
  std::string path = dir / "t.bin";
  std::vector<int64_t> starts = {0, 4};
  write_token_file(path, info_of(), random_tokens(9, 1000), starts);
  std::string whole = read_file(path);
  for (size_t n = 0; n < whole.size(); ++n) {
    put(path, std::string_view(whole).substr(0, n));
    ASSERT_THROW(TokenFile{path}, DataError) << n;
  }
  put(path, whole + "x");
  expect_data_error([&] { TokenFile{path}; }, {"t.bin", "too long", "297 bytes found", "make 296"});
  put(path, std::string_view(whole).substr(0, 290));
  expect_data_error([&] { TokenFile{path}; }, {"t.bin", "truncated", "290 bytes found", "make 296"});
  put(path, std::string_view(whole).substr(0, 100));
  expect_data_error([&] { TokenFile{path}; }, {"t.bin", "truncated", "100 bytes", "256"});
}

TEST(TokenFile, EveryFlippedBitIsFound) {
  TempDir dir;
  std::string path = dir / "t.bin";
  std::vector<int64_t> starts = {0, 4};
  write_token_file(path, info_of(), random_tokens(9, 1000), starts);
  int64_t size = file_size(path);
  for (int64_t at = 0; at < size; ++at) {
    change_byte(path, at);
    ASSERT_THROW(TokenFile(path).verify(), DataError) << at;
    change_byte(path, at);
  }
  TokenFile(path).verify();
}

TEST(TokenFile, SaysWhatItFoundInstead) {
  TempDir dir;
  std::string path = dir / "t.bin";
  write_file(path, "In the beginning God created the heaven and the earth.\n");
  expect_data_error([&] { TokenFile{path}; }, {"t.bin", "In the b", "CHIRONTK", "looks like text", "prepare"});
  write_file(path, std::string("\x00\x01\xff\x34 abc def ghi", 16));
  expect_data_error([&] { TokenFile{path}; }, {"t.bin", "\\x00\\x01\\xff", "expected 'CHIRONTK'"});
  write_file(path, "ab");
  expect_data_error([&] { TokenFile{path}; }, {"t.bin", "2 bytes", "256"});
  write_token_file(path, info_of(), random_tokens(9, 1000), {});
  change_byte(path, 8, 3);
  expect_data_error([&] { TokenFile{path}; }, {"version 2", "version 1"});
}

TEST(TokenFile, IdOutsideTheVocabularyIsPlaced) {
  TempDir dir;
  std::string path = dir / "t.bin";
  std::vector<int32_t> tokens = random_tokens(50, 100);
  tokens[31] = 100;
  write_token_file(path, info_of(100), tokens, {});
  TokenFile file(path);
  std::vector<int32_t> out(20);
  file.read(0, out);
  expect_data_error([&] { file.read(30, out); }, {"t.bin", "token 31", "is 100", "100 ids"});
}

TEST(TokenFile, OneThatIsCutShortWhileItIsReadIsNamed) {
  TempDir dir;
  std::string path = dir / "t.bin";
  std::vector<int64_t> starts = {0, 400};
  write_token_file(path, info_of(), random_tokens(5000, 1000), starts);
  TokenFile file(path);
  std::vector<int32_t> out(100);
  file.read(4900, out);
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  EXPECT_THAT(message_of<IoError>([&] { file.read(4900, out); }), HasSubstr(path));
  EXPECT_THAT(message_of<IoError>([&] { file.next_start(10); }), HasSubstr("something has cut it short"));
  EXPECT_THAT(message_of<IoError>([&] { file.verify(); }), HasSubstr(path));
  file.read(0, out);
}

TEST(TokenFile, ManyDocuments) {
  TempDir dir;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < 3000; ++i) starts.push_back(i + i / 7);
  write_token_file(dir / "t.bin", info_of(), random_tokens(5000, 1000), starts);
  TokenFile file(dir / "t.bin");
  for (int64_t token = -1; token < 5000; ++token) {
    auto it = std::upper_bound(starts.begin(), starts.end(), token);
    ASSERT_EQ(file.next_start(token), it == starts.end() ? 5000 : *it) << token;
  }
}

TEST(TokenFile, DocumentStartsOutOfOrder) {
  TempDir dir;
  std::string path = dir / "t.bin";
  std::vector<int64_t> starts = {0, 5, 5};
  write_token_file(path, info_of(), random_tokens(9, 1000), starts);
  expect_data_error([&] { TokenFile{path}; }, {"document 2", "token 5"});
}

/// A data set of shards with these numbers of tokens; documents begin every 7 tokens.
DatasetInfo write_set(const std::string& folder, const std::vector<int32_t>& tokens, const std::vector<size_t>& sizes) {
  make_directories(folder);
  DatasetInfo info{"byte", byte_tokenizer()->hash(), 256, {}, {}};
  size_t begin = 0;
  for (size_t n : sizes) {
    std::vector<int64_t> starts;
    for (size_t i = begin; i < begin + n; ++i)
      if (i % 7 == 0) starts.push_back(static_cast<int64_t>(i - begin));
    TokenFileInfo file{0, static_cast<int64_t>(n), 256, 0, info.vocabulary_hash, "byte", {}};
    std::string name = fmt::format("tokens-{:05}.bin", info.shards.size());
    info.shards.push_back(
        {name, write_token_file(folder + "/" + name, file, std::span(tokens).subspan(begin, n), starts)});
    begin += n;
  }
  write_file(folder + "/dataset.json", write_dataset_json(info));
  return info;
}

TEST(TokenSet, ShardsAreOneStream) {
  TempDir dir;
  std::vector<int32_t> tokens = random_tokens(100, 256);
  write_set(dir / "set", tokens, {10, 1, 0, 39, 50});
  TokenSet set(dir / "set");
  ASSERT_EQ(set.num_tokens(), 100);
  EXPECT_EQ(set.text_bytes(), 100);
  EXPECT_EQ(set.vocab_size(), 256);
  EXPECT_EQ(set.tokenizer()->name(), "byte");
  set.verify();
  for (int64_t begin = 0; begin <= 100; ++begin)
    for (int64_t n = 0; begin + n <= 100; n += 3) {
      std::vector<int32_t> out(static_cast<size_t>(n));
      set.read(begin, out);
      ASSERT_TRUE(std::equal(out.begin(), out.end(), tokens.begin() + begin));
    }
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(set.next_document(i), std::min<int64_t>((i / 7 + 1) * 7, 100));
}

TEST(TokenSet, OpensOneShard) {
  TempDir dir;
  std::vector<int32_t> tokens = random_tokens(30, 256);
  write_set(dir / "set", tokens, {10, 20});
  TokenSet shard(dir / "set/tokens-00001.bin");
  EXPECT_EQ(shard.num_tokens(), 20);
  std::vector<int32_t> out(20);
  shard.read(0, out);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), tokens.begin() + 10));
  EXPECT_EQ(shard.next_document(0), 4);
  EXPECT_EQ(shard.tokenizer()->name(), "byte");
}

TEST(TokenSet, NamesWhatIsWrong) {
  TempDir dir;
  std::string set = dir / "set";
  DatasetInfo info = write_set(set, random_tokens(30, 256), {10, 20});
  expect_data_error([&] { TokenSet(dir / "nowhere"); }, {"nowhere", "no such folder or file"});
  expect_data_error([&] { TokenSet(dir.path()); }, {dir.path(), "no dataset.json", "prepare"});
  for (const std::string& name : {dir / "was", dir / "was/"}) {
    make_directories(dir / ".was.chiron-old");
    expect_data_error([&] { TokenSet{name}; }, {"the set that was there is " + dir / ".was.chiron-old"});
  }
  make_directories(dir / "both");
  rename_path(set, dir / "both/train");
  expect_data_error([&] { TokenSet(dir / "both"); }, {"did you mean", "both/train"});
  rename_path(dir / "both/train", set);

  rename_path(set + "/tokens-00001.bin", set + "/x.bin");
  expect_data_error([&] { TokenSet{set}; }, {"tokens-00001.bin", "missing"});
  rename_path(set + "/x.bin", set + "/tokens-00001.bin");

  DatasetInfo other = info;
  other.shards[1].info.tokens = 21;
  write_file(set + "/dataset.json", write_dataset_json(other));
  expect_data_error([&] { TokenSet{set}; }, {"tokens-00001.bin", "tokens 20", "says 21"});
  other = info;
  other.shards[1].info.checksum.low ^= 1;
  write_file(set + "/dataset.json", write_dataset_json(other));
  expect_data_error([&] { TokenSet{set}; }, {"tokens-00001.bin", "checksum"});
  other = info;
  other.vocabulary_hash = std::string(32, '0');
  write_file(set + "/dataset.json", write_dataset_json(other));
  expect_data_error([&] { TokenSet{set}; }, {"tokens-00000.bin", "vocabulary hash"});
}

TEST(TokenSet, AnotherTokenizerIsRefused) {
  TempDir dir;
  std::string set = dir / "set";
  make_directories(set);
  TokenFileInfo file{0, 3, 256, 0, std::string(32, 'b'), "bpe", {}};
  std::vector<int32_t> tokens = {1, 2, 3};
  file = write_token_file(set + "/tokens-00000.bin", file, tokens, {});
  write_file(set + "/dataset.json",
             write_dataset_json({"bpe", file.vocabulary_hash, 256, {}, {{"tokens-00000.bin", file}}}));
  expect_data_error([&] { TokenSet(set).tokenizer(); }, {"tokenizer.json"});
  write_file(set + "/tokenizer.json", byte_tokenizer()->json());
  expect_data_error([&] { TokenSet(set).tokenizer(); }, {"tokenizer.json", "another vocabulary", "bbbb"});
}

TEST(DatasetJson, RoundTripAndRefusals) {
  TokenFileInfo file{5, 6, 300, 1, std::string(32, 'c'), "bpe", {1, 2}};
  DatasetInfo info{"bpe", std::string(32, 'c'), 300, 299, {{"tokens-00000.bin", file}}};
  std::string text = write_dataset_json(info);
  DatasetInfo read = read_dataset_json(text, "d.json");
  EXPECT_EQ(write_dataset_json(read), text);
  EXPECT_EQ(read.end_of_text, 299);

  auto changed = [&](const std::string& from, const std::string& to) {
    std::string s = text;
    s.replace(s.find(from), from.size(), to);
    return [s] { read_dataset_json(s, "d.json"); };
  };
  expect_data_error(changed("\"chiron tokens\"", "\"other\""), {"d.json", "format", "other"});
  expect_data_error(changed("\"version\": 1", "\"version\": 2"), {"d.json", "version", "2"});
  expect_data_error(changed("\"vocab_size\"", "\"vocab\""), {"d.json", "vocab_size is missing"});
  expect_data_error(changed("\"tokens-00000.bin\"", "\"../../x\""), {"d.json", "shards[0].file"});
  expect_data_error(changed("\"tokens-00000.bin\"", "7"), {"d.json", "shards[0].file", "7"});
  expect_data_error(changed("\"vocab_size\": 300", "\"vocab_size\": -1"), {"d.json", "vocab_size", "-1"});
  expect_data_error(changed("{", "["), {"d.json:", "not valid JSON"});
  expect_data_error(changed("\"vocab_size\": 300", "\"vocab_size\": 1e400"), {"d.json:6:", "out of range: '1e400'"});
  expect_data_error(changed("\"vocab_size\": 300", "\"vocab_size\": 3e2"), {"d.json", "vocab_size is 300.0"});
  expect_data_error(changed("\"vocab_size\"", "\"version\": 1, \"vocab_size\""), {"d.json:6:", "version", "twice"});
  expect_data_error(changed("\"end_of_text\": 299", "\"end_of_text\": 300"), {"d.json", "end_of_text is 300"});
  expect_data_error(changed("\"end_of_text\": 299", "\"end_of_text\": 4294967296"), {"end_of_text is 4294967296"});
  for (const std::string& end : {std::string(1, '\0'), std::string("x")})
    expect_data_error([&] { read_dataset_json(text + end, "d.json"); }, {"d.json:2", "not valid JSON"});
  expect_data_error([] { read_dataset_json(std::string(300'000, '['), "d.json"); }, {"d.json:1:65", "deeply"});
  expect_data_error([] { read_dataset_json("[]", "d.json"); }, {"d.json", "an object"});
}

}  // namespace
}  // namespace chiron
