#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "text/bpe_train.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace chiron {
namespace {

using ::testing::HasSubstr;

std::string random_bytes(std::mt19937& rng, size_t n, int top = 255) {
  std::string s(n, '\0');
  for (char& c : s) c = static_cast<char>(rng() % static_cast<unsigned>(top + 1));
  return s;
}

/// Words of a small made-up language, with what real text has between them.
std::string babble(std::mt19937& rng, size_t words) {
  static const char* const kSyllables[] = {"an", "the", "lo", "re", "ing", "st", "\xC3\xA9", "\xE4\xB8\xAD", "42", "q"};
  static const char* const kBetween[] = {" ",  " ",   " ",       ", ",       "\n",
                                         "  ", "'s ", "!\n\n\t", "\xC2\xA0", " \xF0\x9F\x91\x8D "};
  std::string text;
  for (size_t i = 0; i < words; ++i) {
    for (unsigned n = 1 + rng() % 3; n > 0; --n) text += kSyllables[rng() % 10];
    text += kBetween[rng() % 10];
  }
  return text;
}

std::unique_ptr<Bpe> small_bpe(int64_t vocab = 400) {
  std::mt19937 rng(7);
  std::string text = babble(rng, 5000);
  std::string_view texts[] = {text};
  return train_bpe(texts, vocab);
}

/// What the merge loop must give, straight from the definition: join the lowest rank, leftmost first.
std::vector<int32_t> slow_merge(const BpeModel& model, std::string_view piece) {
  std::vector<int32_t> ids;
  for (char c : piece)
    for (size_t id = 0; id < 256; ++id)
      if (model.tokens[id] == std::string(1, c)) ids.push_back(static_cast<int32_t>(id));
  for (;;) {
    size_t best = model.merges.size(), where = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t r = 0; r < best; ++r)
        if (model.merges[r].left == ids[i] && model.merges[r].right == ids[i + 1]) best = r, where = i;
    if (best == model.merges.size()) return ids;
    ids[where] = model.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(ByteTokenizer, IsTheBytes) {
  auto t = byte_tokenizer();
  EXPECT_EQ(t->vocab_size(), 256);
  EXPECT_EQ(t->name(), "byte");
  EXPECT_FALSE(t->end_of_text().has_value());
  std::string text("a\0\xFF z", 5);
  EXPECT_EQ(t->encode(text), (std::vector<int32_t>{'a', 0, 255, ' ', 'z'}));
  EXPECT_EQ(t->decode(t->encode(text)), text);
  EXPECT_THROW(t->bytes_of(256), DataError);
  EXPECT_THROW(t->bytes_of(-1), DataError);
}

TEST(ByteTokenizer, WritesAFileThatGivesTheSameIds) {
  auto t = byte_tokenizer();
  Bpe read(read_tokenizer_json(t->json(), "x"));
  std::mt19937 rng(1);
  for (int i = 0; i < 50; ++i) {
    std::string s = random_bytes(rng, rng() % 100);
    ASSERT_EQ(read.encode(s), t->encode(s));
  }
}

TEST(Bpe, LearnsTheMostFrequentPairs) {
  // "ab" 3 times, "abc" twice, "xy" once: ab first, then ab+c; xy occurs once only.
  std::string_view texts[] = {"ab\nab\nab\nabc\nabc\nxy"};
  auto t = train_bpe(texts, 300);
  ASSERT_EQ(t->vocab_size(), 256 + 2 + 1);
  EXPECT_EQ(t->bytes_of(256), "ab");
  EXPECT_EQ(t->bytes_of(257), "abc");
  EXPECT_EQ(t->bytes_of(258), "<|endoftext|>");
  EXPECT_EQ(t->end_of_text(), 258);
  EXPECT_EQ(t->encode("abcab").size(), 2u);
}

TEST(Bpe, TiesGoToTheSmallerIds) {
  std::string_view texts[] = {"cd\ncd\nab\nab"};
  auto t = train_bpe(texts, 258);
  EXPECT_EQ(t->bytes_of(256), "ab");
}

TEST(Bpe, ReachesTheSizeAskedFor) {
  EXPECT_EQ(small_bpe(300)->vocab_size(), 300);
  EXPECT_EQ(small_bpe(257)->vocab_size(), 257);
  EXPECT_THROW(small_bpe(256), ConfigError);
}

TEST(Bpe, PairsThatSpellAKnownTokenShareItsId) {
  // "abc" arises as ab+c and as a+bc; the vocabulary must hold it once.
  std::string text;
  for (int i = 0; i < 9; ++i) text += "abz\n";
  for (int i = 0; i < 8; ++i) text += "bcy\n";
  for (int i = 0; i < 7; ++i) text += "abc\n";
  std::string_view texts[] = {text};
  auto t = train_bpe(texts, 500);
  for (int32_t a = 0; a < t->vocab_size(); ++a)
    for (int32_t b = 0; b < a; ++b) ASSERT_NE(t->bytes_of(a), t->bytes_of(b));
}

TEST(Bpe, RoundTripsAnyBytes) {
  auto t = small_bpe();
  std::mt19937 rng(3);
  for (int i = 0; i < 300; ++i) {
    std::string s = i % 2 ? random_bytes(rng, rng() % 200) : babble(rng, rng() % 50) + random_bytes(rng, rng() % 5);
    ASSERT_EQ(t->decode(t->encode(s)), s);
  }
  EXPECT_TRUE(t->encode("").empty());
}

TEST(Bpe, MergesByDefinition) {
  std::mt19937 rng(11);
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::string(1 + rng() % 9, ' ') + random_bytes(rng, 1, 3) + "aab\n";
  for (char& c : text)
    if (c >= 0 && c < 4) c = static_cast<char>('a' + c);
  std::string_view texts[] = {text};
  auto t = train_bpe(texts, 300);
  BpeModel model = read_tokenizer_json(t->json(), "x");
  for (int i = 0; i < 300; ++i) {
    std::string s = random_bytes(rng, 1 + rng() % 30, 3);
    for (char& c : s) c = static_cast<char>('a' + c);
    ASSERT_EQ(t->encode(s), slow_merge(model, s)) << s;
  }
}

TEST(Bpe, RepeatedPiecesGiveTheSameIds) {
  auto t = small_bpe();
  std::mt19937 rng(5);
  std::string text = babble(rng, 2000);
  std::vector<int32_t> whole = t->encode(text), parts;
  for (size_t at = 0; at < text.size();) {
    size_t cut = t->safe_cut(std::string_view(text).substr(at, 50));
    if (cut == 0) cut = text.size() - at;
    t->encode(std::string_view(text).substr(at, cut), parts);
    at += cut;
  }
  EXPECT_EQ(whole, parts);
}

TEST(Bpe, SafeCutChangesNoIdWhateverFollows) {
  auto t = small_bpe();
  std::mt19937 rng(9);
  int cuts = 0;
  for (int i = 0; i < 500; ++i) {
    std::string head = babble(rng, rng() % 8), tail = babble(rng, rng() % 4);
    head.resize(head.size() - std::min(head.size(), size_t{rng() % 4}));
    if (i % 3 == 0) head += "<|endoftext|>";
    size_t cut = t->safe_cut(head);
    ASSERT_LE(cut, head.size());
    cuts += cut > 0;
    std::string whole = head + tail;
    std::vector<int32_t> ids = t->encode(std::string_view(whole).substr(0, cut));
    t->encode(std::string_view(whole).substr(cut), ids);
    ASSERT_EQ(ids, t->encode(whole));
  }
  EXPECT_GT(cuts, 100);
}

TEST(Bpe, KnowsSpecialTokensInTheText) {
  auto t = small_bpe();
  int32_t end = *t->end_of_text();
  EXPECT_EQ(t->encode("<|endoftext|>"), std::vector<int32_t>{end});
  std::vector<int32_t> ids = t->encode("an<|endoftext|><|endoftext|>an<|endoftext");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 2);
  EXPECT_EQ(t->decode(ids), "an<|endoftext|><|endoftext|>an<|endoftext");
}

TEST(Bpe, LongRunOfOneLetterIsNotQuadratic) {
  std::string_view texts[] = {"aaaaaaaaaaaaaaaa\naaaaaaaaaaaaaaaa"};
  auto t = train_bpe(texts, 300);
  auto seconds = [&](size_t n) {
    std::string s(n, 'a');
    auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(t->decode(t->encode(s)), s);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  EXPECT_LT(seconds(100000), 1.0);  // a quadratic loop takes over ten
}

TEST(Bpe, FileRoundTrip) {
  auto t = small_bpe();
  Bpe read(read_tokenizer_json(t->json(), "x"));
  EXPECT_EQ(read.hash(), t->hash());
  EXPECT_EQ(read.vocab_size(), t->vocab_size());
  EXPECT_EQ(read.end_of_text(), t->end_of_text());
  std::mt19937 rng(13);
  std::string text = babble(rng, 1000) + "<|endoftext|>" + random_bytes(rng, 500);
  EXPECT_EQ(read.encode(text), t->encode(text));
  EXPECT_EQ(read.json(), t->json());
}

TEST(Bpe, HashTellsVocabulariesApart) {
  auto a = small_bpe(300), b = small_bpe(301);
  EXPECT_NE(a->hash(), b->hash());
  EXPECT_NE(a->hash(), byte_tokenizer()->hash());
  EXPECT_EQ(a->hash(), small_bpe(300)->hash());
  BpeModel model = read_tokenizer_json(a->json(), "x");
  std::swap(model.merges[0], model.merges[1]);
  EXPECT_NE(Bpe(model).hash(), a->hash());
}

TEST(Bpe, IdOutsideTheVocabulary) {
  auto t = small_bpe(300);
  EXPECT_THROW(t->bytes_of(300), DataError);
  EXPECT_THROW(t->bytes_of(-1), DataError);
}

TEST(Utf8, CompletePrefix) {
  EXPECT_EQ(complete_utf8(""), 0u);
  EXPECT_EQ(complete_utf8("ab"), 2u);
  EXPECT_EQ(complete_utf8("a\xC3"), 1u);
  EXPECT_EQ(complete_utf8("a\xC3\xA9"), 3u);
  EXPECT_EQ(complete_utf8("\xF0\x9F\x91"), 0u);
  EXPECT_EQ(complete_utf8("a\xF0\x9F"), 1u);
  EXPECT_EQ(complete_utf8("a\x80"), 2u) << "nothing can complete a stray byte";
  EXPECT_EQ(complete_utf8("a\xE0\x80"), 3u) << "an overlong form cannot be completed";
}

TEST(Utf8, StreamedDecodingShowsWholeCharacters) {
  auto t = byte_tokenizer();
  std::string text = "h\xC3\xA9 \xF0\x9F\x91\x8D", pending, shown;
  for (int32_t id : t->encode(text)) {
    pending += t->bytes_of(id);
    size_t n = complete_utf8(pending);
    shown += pending.substr(0, n);
    pending.erase(0, n);
    if (!pending.empty()) {
      EXPECT_LT(static_cast<uint8_t>(shown.back()), 0xF0);
    }
  }
  EXPECT_EQ(shown, text);
}

using Json = nlohmann::ordered_json;

/// A refusal must name the file and the part.
void expect_refused(const std::function<void(Json&)>& change, const std::string& name) {
  static const Json kGood = Json::parse(small_bpe(260)->json());
  Json json = kGood;
  change(json);
  try {
    read_tokenizer_json(json.dump(), "dir/tokenizer.json");
    FAIL() << "accepted, though " << name;
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("dir/tokenizer.json"));
    EXPECT_THAT(e.what(), HasSubstr(name));
  }
}

TEST(TokenizerJson, RefusesByName) {
  expect_refused([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }, "NFC");
  expect_refused([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "Metaspace");
  expect_refused([](Json& j) { j["pre_tokenizer"] = nullptr; }, "pre-tokenizer null");
  expect_refused([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "add_prefix_space true");
  expect_refused([](Json& j) { j["pre_tokenizer"].erase("add_prefix_space"); }, "add_prefix_space absent");
  expect_refused([](Json& j) { j["pre_tokenizer"]["use_regex"] = false; }, "use_regex false");
  expect_refused([](Json& j) { j["post_processor"] = {{"type", "TemplateProcessing"}}; }, "TemplateProcessing");
  expect_refused([](Json& j) { j["decoder"] = {{"type", "WordPiece"}}; }, "WordPiece");
  expect_refused([](Json& j) { j["truncation"] = {{"max_length", 8}}; }, "truncation");
  expect_refused([](Json& j) { j["padding"] = {{"strategy", "Fixed"}}; }, "padding");
  expect_refused([](Json& j) { j["model"]["type"] = "Unigram"; }, "Unigram");
  expect_refused([](Json& j) { j["model"]["dropout"] = 0.1; }, "dropout");
  expect_refused([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "</w>");
  expect_refused([](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, "##");
  expect_refused([](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback");
  expect_refused([](Json& j) { j["model"]["ignore_merges"] = true; }, "ignore_merges");
  expect_refused([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }, "lstrip");
  expect_refused([](Json& j) { j["added_tokens"][0]["normalized"] = true; }, "normalized");
  expect_refused([](Json& j) { j["added_tokens"][0]["content"] = ""; }, "empty");
  expect_refused([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }, "listed twice");
  expect_refused([](Json& j) { j["added_tokens"][0]["id"] = 3; }, "id 3");
  expect_refused([](Json& j) { j["model"]["vocab"]["!"] = 1; }, "share the id 1");
  expect_refused([](Json& j) { j["model"]["vocab"]["!"] = -1; }, "id -1");
  expect_refused([](Json& j) { j["model"]["vocab"]["!"] = "x"; }, "no integer id");
  expect_refused([](Json& j) { j["model"]["vocab"].erase("!"); }, "no token has the id 0");
  expect_refused([](Json& j) { j["model"]["vocab"]["\xE4\xB8\xAD"] = 260; }, "no sequence of byte-level characters");
  expect_refused([](Json& j) { j["model"]["merges"][0] = "a b c"; }, "merge 1");
  expect_refused([](Json& j) { j["model"]["merges"][0] = Json::array({"zzz", "b"}); }, "zzz");
  expect_refused([](Json& j) { j["model"]["merges"].push_back(j["model"]["merges"][0]); }, "listed twice");
  expect_refused([](Json& j) { j["model"]["merges"] = 3; }, "merges");
  expect_refused([](Json& j) { j.erase("model"); }, "'model' must be an object");
  expect_refused([](Json& j) { j = Json::array(); }, "JSON object");
}

TEST(TokenizerJson, AByteWithoutATokenIsNamed) {
  BpeModel model = read_tokenizer_json(byte_tokenizer()->json(), "x");
  model.tokens['q'] = "qq";
  try {
    read_tokenizer_json(write_tokenizer_json(model), "x");
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("byte 113"));
  }
}

TEST(TokenizerJson, NotJsonNamesThePlace) {
  try {
    read_tokenizer_json("{\"version\": oops", "t.json");
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("t.json:1:13"));
  }
}

TEST(TokenizerJson, IsReadAsStrictlyAsAnyJson) {
  const std::string text = byte_tokenizer()->json();
  auto refused = [&](const std::string& changed) {
    try {
      read_tokenizer_json(changed, "t.json");
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refused(text), "no error");
  auto with = [&](const char* entry) { return "{" + std::string(entry) + text.substr(1); };
  EXPECT_THAT(refused(with("\"model\": {},")), HasSubstr("\"model\" stands twice"));
  EXPECT_THAT(refused(with("\"x\": 1e400,")), HasSubstr("t.json:1:"));
  EXPECT_THAT(refused(with("\"x\": 1e400,")), HasSubstr("out of range"));
  EXPECT_THAT(refused(text + '\0'), HasSubstr("a zero byte"));
  EXPECT_THAT(refused(text + "x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused(std::string(300'000, '[')), HasSubstr("nested too deeply"));
}

TEST(TokenizerJson, ReadsLegacyMerges) {
  auto t = small_bpe(300);
  Json json = Json::parse(t->json());
  Json legacy = Json::array({"#version: 0.2"});
  for (const Json& pair : json["model"]["merges"])
    legacy.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  json["model"]["merges"] = legacy;
  EXPECT_EQ(Bpe(read_tokenizer_json(json.dump(), "x")).hash(), t->hash());
}

TEST(TokenizerJson, OpenNamesWhatIsMissing) {
  try {
    open_tokenizer("no/such/tokenizer.json");
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no/such/tokenizer.json"));
  }
  EXPECT_EQ(open_tokenizer("byte")->name(), "byte");
}

}  // namespace
}  // namespace chiron
