#include "data/prepare.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error_testing.h"
#include "base/file_lock.h"
#include "base/temp_dir.h"
#include "data/testing.h"
#include "data/text_input.h"
#include "data/token_set.h"

namespace chiron {
namespace {

using test::expect_data_error;
using test::expect_error;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string text_of(const TokenSet& set) {
  std::vector<int32_t> ids(static_cast<size_t>(set.num_tokens()));
  set.read(0, ids);
  return set.tokenizer()->decode(ids);
}

std::string lines(int n, unsigned seed = 1) {
  std::mt19937 rng(seed);
  static const char* const kWords[] = {"the", "heaven", "earth", "and", "waters", "upon", "deep"};
  std::string text;
  for (int i = 0; i < n; ++i) {
    for (unsigned k = 1 + rng() % 9; k > 0; --k) text += std::string(kWords[rng() % 7]) + (k > 1 ? " " : ".\n");
  }
  return text;
}

std::vector<int64_t> starts_of(const TokenSet& set) {
  std::vector<int64_t> starts = {0};
  while (starts.back() < set.num_tokens()) starts.push_back(set.next_document(starts.back()));
  return starts;
}

TEST(Prepare, BytesAreTheText) {
  TempDir dir;
  std::string a = lines(50), b = "\xFF\x00 not UTF-8 \xC3";
  write_file(dir / "a.txt", a);
  write_file(dir / "b.txt", b);
  PrepareReport report = prepare({.inputs = {dir / "a.txt", dir / "b.txt"}, .out = dir / "set"});
  TokenSet set(dir / "set");
  set.verify();
  EXPECT_EQ(text_of(set), a + b);
  EXPECT_EQ(set.text_bytes(), static_cast<int64_t>(a.size() + b.size()));
  EXPECT_EQ(starts_of(set), (std::vector<int64_t>{0, static_cast<int64_t>(a.size()), set.num_tokens()}));
  EXPECT_EQ(report.train.tokens, set.num_tokens());
  EXPECT_EQ(report.train.documents, 2);
  EXPECT_EQ(report.train.bytes_per_token(), 1.0);
  EXPECT_EQ(report.files, 2);
  EXPECT_FALSE(report.validation);
  EXPECT_FALSE(file_exists(dir / "set/tokenizer.json"));
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::string>{"a.txt", "b.txt", "set"})) << "nothing is left over";
}

TEST(Prepare, ShardsLoseNothing) {
  TempDir dir;
  for (int64_t shard : {1, 7, 1000, 100000}) {
    std::string text = lines(shard < 100 ? 2 : 40);
    write_file(dir / "a.txt", text);
    write_file(dir / "b.txt", text);
    PrepareReport report = prepare(
        {.inputs = {dir / "a.txt", dir / "b.txt"}, .out = dir / "set", .shard_tokens = shard, .overwrite = true});
    TokenSet set(dir / "set");
    set.verify();
    ASSERT_EQ(text_of(set), text + text);
    EXPECT_EQ(report.train.shards, (set.num_tokens() + shard - 1) / shard);
    EXPECT_EQ(set.text_bytes(), static_cast<int64_t>(2 * text.size()));
    EXPECT_EQ(starts_of(set).size(), 3u);
  }
}

TEST(Prepare, TrainsABpeOnTheTrainingPartOnly) {
  TempDir dir;
  std::string text = lines(400);
  write_file(dir / "a.txt", text + "zyxw zyxw zyxw zyxw\n");
  PrepareReport report = prepare(
      {.inputs = {dir / "a.txt"}, .out = dir / "set", .train_bpe = 300, .validation = 20.0 / (text.size() + 20)});
  TokenSet train(dir / "set/train"), held_out(dir / "set/validation");
  EXPECT_EQ(report.vocab_size, train.vocab_size());
  EXPECT_EQ(report.tokenizer, "bpe");
  EXPECT_GT(report.train.bytes_per_token(), 2.0);
  EXPECT_EQ(text_of(train), text + "<|endoftext|>");
  EXPECT_EQ(text_of(held_out), "zyxw zyxw zyxw zyxw\n<|endoftext|>");
  EXPECT_EQ(train.text_bytes(), static_cast<int64_t>(text.size()));
  EXPECT_EQ(held_out.text_bytes(), 20);
  EXPECT_EQ(train.info().vocabulary_hash, held_out.info().vocabulary_hash);
  auto tokenizer = held_out.tokenizer();
  for (int32_t id = 256; id < tokenizer->vocab_size(); ++id)
    EXPECT_EQ(tokenizer->bytes_of(id).find('z'), std::string::npos);

  prepare({.inputs = {dir / "a.txt"}, .out = dir / "again", .tokenizer = dir / "set/train/tokenizer.json"});
  EXPECT_EQ(TokenSet(dir / "again").info().vocabulary_hash, train.info().vocabulary_hash);
}

TEST(Prepare, LongDocumentsEncodeAsAWhole) {
  TempDir dir;
  std::string text = lines(50000) + std::string(3 << 19, 'x') + lines(10);  // parts of 1 MiB, one without a break
  write_file(dir / "a.txt", text);
  prepare({.inputs = {dir / "a.txt"}, .out = dir / "set", .train_bpe = 280});
  TokenSet set(dir / "set");
  std::vector<int32_t> ids(static_cast<size_t>(set.num_tokens()));
  set.read(0, ids);
  auto tokenizer = set.tokenizer();
  std::vector<int32_t> whole = tokenizer->encode(text);
  whole.push_back(*tokenizer->end_of_text());
  EXPECT_TRUE(ids == whole);
}

TEST(Prepare, SeparatorCutsDocuments) {
  TempDir dir;
  write_file(dir / "a.txt", "one\n###\ntwo\n###\n\n###\n");
  PrepareReport report = prepare({.inputs = {dir / "a.txt"}, .out = dir / "set", .document_separator = "\n###\n"});
  TokenSet set(dir / "set");
  EXPECT_EQ(report.train.documents, 2);
  EXPECT_EQ(text_of(set), "onetwo");
  EXPECT_EQ(starts_of(set), (std::vector<int64_t>{0, 3, 6}));
  write_file(dir / "b.txt", "##");
  expect_data_error([&] { prepare({.inputs = {dir / "b.txt"}, .out = dir / "b", .document_separator = "#"}); },
                    {"b.txt", "separators"});
  EXPECT_FALSE(directory_exists(dir / "b"));
}

TEST(Prepare, FoldersAreReadInOrder) {
  TempDir dir;
  make_directories(dir / "in/sub/.hidden");
  write_file(dir / "in/b.txt", "B");
  write_file(dir / "in/a.txt", "A");
  write_file(dir / "in/empty.txt", "");
  write_file(dir / "in/sub/c.txt", "C");
  write_file(dir / "in/sub/.hidden/d.txt", "D");
  write_file(dir / "in/.e.txt", "E");
  PrepareReport report = prepare({.inputs = {dir / "in"}, .out = dir / "set"});
  EXPECT_EQ(text_of(TokenSet(dir / "set")), "ABC");
  EXPECT_EQ(report.empty_files, 1);
  EXPECT_EQ(report.train.documents, 3);
}

TEST(Prepare, DataSetsInFoldersAreNoText) {
  TempDir dir;
  make_directories(dir / "in/sub");
  write_file(dir / "in/a.txt", "A");
  write_file(dir / "in/sub/dataset.json", "{}");  // text with a file of that name
  prepare({.inputs = {dir / "in/a.txt"}, .out = dir / "in/set"});
  PrepareReport report = prepare({.inputs = {dir / "in"}, .out = dir / "in/set", .overwrite = true});
  EXPECT_EQ(text_of(TokenSet(dir / "in/set")), "A{}");
  EXPECT_THAT(report.passed_over, ElementsAre(dir / "in/set: a data set, no text"));
  expect_data_error([&] { prepare({.inputs = {dir / "in/set"}, .out = dir / "o"}); }, {"in/set: a data set, no text"});
}

TEST(Prepare, LinksToFoldersAreFollowedOnce) {
  TempDir dir;
  namespace fs = std::filesystem;
  make_directories(dir / "in/b");
  make_directories(dir / "elsewhere");
  write_file(dir / "in/b/b.txt", "B");
  write_file(dir / "elsewhere/e.txt", "E");
  write_file(dir / "file.txt", "F");
  fs::create_symlink("b", dir / "in/a");
  fs::create_symlink("..", dir / "in/b/up");
  fs::create_symlink("../elsewhere", dir / "in/c");
  fs::create_symlink(dir / "elsewhere", dir / "in/d");
  fs::create_symlink("../file.txt", dir / "in/f.txt");
  fs::create_symlink("loop2", dir / "in/loop1");
  fs::create_symlink("loop1", dir / "in/loop2");
  fs::create_symlink("nothing", dir / "in/dangling");
  PrepareReport report = prepare({.inputs = {dir / "in"}, .out = dir / "set"});
  std::string text = text_of(TokenSet(dir / "set"));
  std::ranges::sort(text);
  EXPECT_EQ(text, "BEF");
  EXPECT_THAT(report.passed_over, UnorderedElementsAre(dir / "in/a: leads to a folder that is read already",
                                                       dir / "in/b/up: leads to a folder that is read already",
                                                       AnyOf(dir / "in/c: leads to a folder that is read already",
                                                             dir / "in/d: leads to a folder that is read already"),
                                                       dir / "in/loop1: neither a file nor a folder",
                                                       dir / "in/loop2: neither a file nor a folder",
                                                       dir / "in/dangling: neither a file nor a folder"));
}

TEST(Prepare, EndOfTextInTheTextCountsItsBytes) {
  TempDir dir;
  const std::string text = lines(40) + "<|endoftext|>" + lines(3) + "<|endoftext|><|endoftext|>";
  write_file(dir / "a.txt", text);
  write_file(dir / "b.txt", text);
  for (int64_t shard : {7, 100000}) {
    prepare({.inputs = {dir / "a.txt", dir / "b.txt"},
             .out = dir / "set",
             .train_bpe = 300,
             .shard_tokens = shard,
             .overwrite = true});
    TokenSet set(dir / "set");
    EXPECT_EQ(text_of(set), text + "<|endoftext|>" + text + "<|endoftext|>");
    EXPECT_EQ(set.text_bytes(), static_cast<int64_t>(2 * text.size()));
  }
}

TEST(Prepare, OneProcessAtATimeMakesASet) {
  TempDir dir;
  write_file(dir / "a.txt", "text");
  const PrepareOptions o{.inputs = {dir / "a.txt"}, .out = dir / "set"};
  {
    FileLock other(dir / ".set.chiron-lock");
    make_directories(dir / ".set.chiron-new");
    expect_error<IoError>([&] { prepare(o); }, {dir / ".set.chiron-lock", "locked by process", "only one process"});
    EXPECT_TRUE(directory_exists(dir / ".set.chiron-new")) << "the other's work is left alone";
  }
  prepare(o);
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::string>{"a.txt", "set"}));
}

TEST(Prepare, ManyAtOnceLoseNothing) {
  TempDir dir;
  std::vector<std::string> texts;
  for (int i = 0; i < 4; ++i)
    write_file(dir / std::to_string(i), texts.emplace_back(lines(200, static_cast<unsigned>(i))));
  std::atomic<int> done = 0, refused = 0;
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < 4; ++i)
      all.emplace_back([&, i] {
        for (int n = 0; n < 5; ++n) try {
            prepare({.inputs = {dir / std::to_string(i)}, .out = dir / "set", .shard_tokens = 500, .overwrite = true});
            ++done;
          } catch (const IoError& e) {
            EXPECT_THAT(e.what(), HasSubstr("is locked by"));
            ++refused;
          }
      });
  }
  EXPECT_EQ(done + refused, 20);
  EXPECT_GT(done, 0);
  TokenSet set(dir / "set");
  set.verify();
  EXPECT_THAT(texts, Contains(text_of(set)));
}

TEST(Prepare, KilledAnywhereWhileItReplacesASet) {
  TempDir dir;
  const std::string before = lines(30), after = lines(31, 2), set = dir / "set", old = dir / ".set.chiron-old";
  const PrepareOptions o{.inputs = {dir / "b.txt"}, .out = set, .overwrite = true};
  write_file(dir / "a.txt", before);
  write_file(dir / "b.txt", after);
  auto killed = [&](const FileFaults& faults) {
    remove_tree(set);
    prepare({.inputs = {dir / "a.txt"}, .out = set});
    const pid_t pid = ::fork();
    if (pid == 0) {
      set_file_faults(faults);
      try {
        prepare(o);
      } catch (const Error&) {
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFSIGNALED(status);
  };
  auto expect_whole = [&](int64_t at) {
    TokenSet found(set);
    found.verify();
    EXPECT_TRUE(text_of(found) == before || text_of(found) == after) << at;
    prepare(o);
    EXPECT_EQ(text_of(TokenSet(set)), after);
    EXPECT_EQ(list_directory(dir.path()), (std::vector<std::string>{"a.txt", "b.txt", "set"})) << at;
  };
  int64_t last = 0;
  while (killed({.crash_at = last + 1})) expect_whole(++last);
  EXPECT_GT(last, 10);

  // On a file system that cannot exchange: the operation whose failure is followed by two renames.
  int64_t exchange = 0;
  while (exchange < last && !directory_exists(old)) {
    ++exchange;
    killed({.crash_at = exchange + 2, .fail_at = exchange, .error = ENOSYS});
  }
  ASSERT_TRUE(directory_exists(old) && !directory_exists(set));
  expect_data_error([&] { TokenSet{set}; }, {"the set that was there is " + old});
  expect_error<ConfigError>([&] { prepare({.inputs = {dir / "a.txt"}, .out = set}); }, {"already"});
  EXPECT_EQ(text_of(TokenSet(set)), before) << "it is back";
  expect_whole(exchange);
  for (int64_t at : {exchange + 1, exchange + 3, exchange + 4, exchange + 5}) {
    ASSERT_TRUE(killed({.crash_at = at, .fail_at = exchange, .error = ENOSYS}));
    expect_whole(at);
  }
}

TEST(Prepare, BadInputIsNamed) {
  TempDir dir;
  write_file(dir / "a.txt", "a\n");
  write_file(dir / "empty.txt", "");
  make_directories(dir / "hollow");
  auto with = [&](const std::string& input) { return [&, input] { prepare({.inputs = {input}, .out = dir / "o"}); }; };
  expect_data_error([&] { prepare({.inputs = {}, .out = dir / "o"}); }, {"no input"});
  expect_data_error(with(dir / "nowhere.txt"), {"nowhere.txt", "no such"});
  expect_data_error(with("/dev/null"), {"/dev/null", "neither a regular file nor a folder"});
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  expect_data_error(with(dir / "fifo"), {"fifo", "neither a regular file nor a folder"});
  expect_data_error(with(dir / "empty.txt"), {"empty.txt", "empty"});
  expect_data_error(with(dir / "hollow"), {"hollow", "no file"});
  auto options = [&](auto change) {
    PrepareOptions o{.inputs = {dir / "a.txt"}, .out = dir / "o"};
    change(o);
    return [o] { prepare(o); };
  };
  expect_data_error(options([](auto& o) { o.validation = 0.01; }), {"2 bytes", "0.01"});
  expect_data_error(options([&](auto& o) { o.tokenizer = "bytes"; }), {"bytes"});
  expect_data_error(options([&](auto& o) { o.tokenizer = dir / "a.txt"; }), {"a.txt:1:1", "not valid JSON"});
  expect_error<ConfigError>(options([](auto& o) { o.validation = 1; }), {"validation", "1"});
  expect_error<ConfigError>(options([](auto& o) { o.train_bpe = 100; }), {"100", "257"});
  expect_error<ConfigError>(options([](auto& o) { o.shard_tokens = 0; }), {"shard", "0"});
  expect_error<ConfigError>(options([&](auto& o) { o.out = dir / "a.txt"; }), {"a.txt", "file"});
  EXPECT_FALSE(directory_exists(dir / "o"));
  std::filesystem::create_symlink(dir / "hollow", dir / "link");
  expect_error<ConfigError>(options([&](auto& o) { o.out = dir / "link"; }), {"is a link", "hollow"});
  expect_error<ConfigError>(options([&](auto& o) { o.out = dir / "hollow/."; }), {"hollow/.", "no name"});
}

TEST(Prepare, OverwritesOnlyWhatItMade) {
  TempDir dir;
  write_file(dir / "a.txt", "aaa\nbbb\n");
  PrepareOptions o{.inputs = {dir / "a.txt"}, .out = dir / "set/"};
  prepare(o);
  expect_error<ConfigError>([&] { prepare(o); }, {"set", "already", "--overwrite"});
  o.overwrite = true;
  o.validation = 0.5;
  prepare(o);
  EXPECT_EQ(text_of(TokenSet(dir / "set/train")), "aaa\n");
  write_file(dir / "set/train/notes.txt", "mine");
  expect_error<ConfigError>([&] { prepare(o); }, {"set", "train/notes.txt"});
  o.out = dir / "other";
  make_directories(o.out);
  prepare(o);  // an empty folder is fine
  make_directories(dir / "full/x");
  o.out = dir / "full";
  expect_error<ConfigError>([&] { prepare(o); }, {"full", "not empty"});
}

TEST(Prepare, AFailedWriteLeavesWhatWasThere) {
  TempDir dir;
  write_file(dir / "a.txt", lines(30));
  PrepareOptions o{
      .inputs = {dir / "a.txt"}, .out = dir / "set", .train_bpe = 260, .shard_tokens = 500, .overwrite = true};
  prepare(o);
  std::string before = text_of(TokenSet(dir / "set"));
  std::string after = lines(31, 2);
  write_file(dir / "a.txt", after);
  after += "<|endoftext|>";
  int failed = 0;
  for (int64_t at = 1;; ++at) {
    FileFaults faults;
    faults.fail_at = at;
    set_file_faults(faults);
    try {
      prepare(o);
      if (file_operations() < at) break;  // this one is never reached
    } catch (const IoError&) {
      ++failed;
    }
    set_file_faults({});
    TokenSet set(dir / "set");  // whole at every moment, old or new
    set.verify();
    std::string now = text_of(set);
    ASSERT_TRUE(now == before || now == after) << "after operation " << at << " failed";
  }
  set_file_faults({});
  EXPECT_GT(failed, 10);
}

TEST(SplitText, CutsAtLinesAndCharacters) {
  TempDir dir;
  auto cut = [&](const std::string& text, double last, const std::string& separator = "") {
    write_file(dir / "t", text);
    auto [first, second] = split_text(find_text({dir / "t"}), last, separator);
    EXPECT_LE(first.size(), 1u);
    if (!first.empty() && !second.empty()) {
      EXPECT_EQ(first[0].end, second[0].begin);
    }
    return first.empty() ? 0 : first[0].end;
  };
  EXPECT_EQ(cut("0123\n56\n89", 0.5), 5) << "already after a line";
  EXPECT_EQ(cut("0123\n56\n89", 0.4), 8) << "to the next line's end";
  EXPECT_EQ(cut("0123456789", 0.2), 8);
  EXPECT_EQ(cut("\xC3\xA9\xC3\xA9\xC3\xA9", 0.5), 4) << "not within a character";
  EXPECT_EQ(cut("0123\n##\n89", 0.5, "\n##\n"), 8) << "not within a separator";
  EXPECT_EQ(cut("0123\n##\n89", 0.2, "\n##\n"), 8);
  EXPECT_EQ(cut("0123456789", 0), 10);
}

TEST(TextParts, AreTheDocumentsWhateverTheirSize) {
  TempDir dir;
  std::mt19937 rng(3);
  // Documents that are longer than a part, and separators on the border of two.
  for (const std::string separator : {"", "#", "\n##\n"})
    for (size_t first : {size_t{5}, (size_t{1} << 20) - 2, (size_t{1} << 20) - 1, size_t{1} << 20, size_t{3'000'000}}) {
      std::vector<std::string> documents;
      std::string text = separator;
      for (size_t size : {first, size_t{1}, size_t{2'100'000}, size_t{7}}) {
        std::string& document = documents.emplace_back();
        while (document.size() < size) document += rng() % 5 ? static_cast<char>('a' + rng() % 26) : ' ';
        text += document + separator + separator;
        if (separator.empty()) break;
      }
      write_file(dir / "t", "xy" + text + "z");
      const TextInputs inputs = find_text({dir / "t"});
      for (bool spaces : {false, true}) {
        std::vector<std::string> found;
        each_part(
            inputs, {{0, 2, 2 + std::ssize(text)}}, separator,
            [&](std::string_view t) { return spaces                 ? t.rfind(' ') + 1
                                             : t.size() < 2'000'000 ? 0
                                                                    : t.size(); },
            [&](std::string_view part, bool begins) {
              EXPECT_FALSE(part.empty());
              if (begins) found.emplace_back();
              found.back() += part;
            });
        EXPECT_TRUE(found == documents) << separator << " " << first;
      }
    }
}

TEST(TextParts, AFileThatIsCutShortWhileItIsReadIsNamed) {
  TempDir dir;
  const std::string path = dir / "t";
  write_file(path, std::string(3 << 20, 'x'));
  const TextInputs inputs = find_text({path});
  const auto [all, none] = split_text(inputs, 0, "");
  auto read = [&] {
    each_part(
        inputs, all, "", [](std::string_view text) { return text.size(); },
        [&](std::string_view, bool) { ASSERT_EQ(::truncate(path.c_str(), 1 << 20), 0); });
  };
  for (int i = 0; i < 2; ++i)  // while it is open, and before
    EXPECT_THAT(message_of<IoError>(read), AllOf(HasSubstr(path), HasSubstr("something has cut it short")));
  EXPECT_THAT(message_of<IoError>([&] { split_text(inputs, 0.1, ""); }), HasSubstr(path));
}

TEST(SplitText, SeveralFiles) {
  TempDir dir;
  write_file(dir / "a", std::string(60, 'a'));
  write_file(dir / "b", std::string(40, 'b'));
  auto inputs = find_text({dir / "a", dir / "b"});
  auto [first, second] = split_text(inputs, 0.4, "");
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].file, 1u);
  auto [most, rest] = split_text(inputs, 0.1, "");
  ASSERT_EQ(most.size(), 2u);
  EXPECT_EQ(most[1].end, 30);
  EXPECT_EQ(rest[0].begin, 30);
}

}  // namespace
}  // namespace chiron
