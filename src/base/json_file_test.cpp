#include "base/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temp_dir.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

JsonObject read(const std::string& text) {
  TempDir dir;
  write_file(dir / "config.json", text);
  return JsonObject::read(dir / "config.json");
}

TEST(JsonFile, TypedValues) {
  JsonObject o = read(R"({"i": -3, "d": 1e-5, "b": true, "s": "gelu", "n": null, "one": 2, "many": [1, 2],
                          "names": ["a", "b"], "rope": {"factor": 8}})");
  EXPECT_EQ(o.integer("i"), -3);
  EXPECT_EQ(o.number("d"), 1e-5);
  EXPECT_EQ(o.number("i"), -3.0);
  EXPECT_TRUE(o.boolean("b"));
  EXPECT_EQ(o.text("s"), "gelu");
  EXPECT_FALSE(o.has("n"));
  EXPECT_EQ(o.integer("n", 7), 7);
  EXPECT_EQ(o.number("absent", 0.5), 0.5);
  EXPECT_EQ(o.text("absent", "x"), "x");
  EXPECT_TRUE(o.boolean("absent", true));
  EXPECT_THAT(o.integers("one"), ElementsAre(2));
  EXPECT_THAT(o.integers("many"), ElementsAre(1, 2));
  EXPECT_THAT(o.texts("names"), ElementsAre("a", "b"));
  EXPECT_TRUE(o.integers("absent").empty());
  EXPECT_EQ(o.object("rope").integer("factor"), 8);
  EXPECT_EQ(o.keys().size(), 9u);
}

TEST(JsonFile, WrongTypesNameFileAndKey) {
  JsonObject o = read(R"({"n_layer": "12", "eps": "x", "tie": 1, "act": 3, "eos": [1, "x"], "rope": {"factor": []},
                          "big": 18446744073709551615, "half": 1.5, "a": [1]})");
  auto complains = [&](const std::function<void()>& f, const char* key, const char* found) {
    EXPECT_THAT(message_of<DataError>(f), AllOf(HasSubstr("config.json"), HasSubstr(key), HasSubstr(found)));
  };
  complains([&] { o.integer("n_layer", 3); }, "n_layer", "\"12\", expected an integer");
  complains([&] { o.integer("half"); }, "half", "1.5");
  complains([&] { o.integer("big"); }, "big", "18446744073709551615");
  complains([&] { o.number("eps"); }, "eps", "expected a number");
  complains([&] { o.boolean("tie"); }, "tie", "true or false");
  complains([&] { o.text("act"); }, "act", "a string");
  complains([&] { o.integers("eos"); }, "eos", "list of integers");
  complains([&] { o.texts("a"); }, "a is [1]", "list of strings");
  complains([&] { o.object("tie"); }, "tie", "an object");
  complains([&] { o.object("rope").number("factor"); }, "rope.factor", "[]");
  complains([&] { o.integer("n_head"); }, "n_head", "missing");
}

TEST(JsonFile, BadFiles) {
  EXPECT_THAT(message_of<DataError>([] { read("{\"a\": 1,\n  \"b\" 2}"); }),
              AllOf(HasSubstr("config.json:2:"), HasSubstr("JSON")));
  EXPECT_THAT(message_of<DataError>([] { read(""); }), HasSubstr("config.json:1:1"));
  EXPECT_THAT(message_of<DataError>([] { read("[1]"); }), HasSubstr("expected an object"));
  EXPECT_THAT(message_of<DataError>([] { read(R"({"a": 1, "b": {"a": 2}, "a": 3})"); }),
              HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(message_of<DataError>([] { read("{\"a\": 1} x"); }), HasSubstr("config.json:1:"));
  EXPECT_THAT(message_of<DataError>([] { read("{\"\xff\": 1}"); }), HasSubstr("config.json:1:"));
  EXPECT_THAT(message_of<DataError>([] { read(std::string("{}\0x", 4)); }), HasSubstr("config.json:1:3"));
}

TEST(JsonFile, WhatTheGrammarAllowsAndNoReaderShould) {
  auto complains = [](const std::string& text, const char* place, const char* what) {
    EXPECT_THAT(message_of<DataError>([&] { read(text); }),
                AllOf(HasSubstr(std::string("config.json") + place), HasSubstr(what)));
  };
  complains("{\"a\": 1,\n \"b\": 1e999}", ":2:", "a number is out of range: '1e999'");
  complains("{\"a\": 1,\n \"b\": {\"a\": 1},\n\"a\": 3}", ":3:3:", "the key \"a\" stands twice");
  for (const auto& [open, close] : {std::pair{std::string("["), "]"}, {std::string("{\"a\":"), "}"}}) {
    auto nested = [&, o = open, c = close](int depth) {
      std::string text = "{\"a\": ", end = "}";
      for (int i = 1; i < depth; ++i) text += o;
      text += "1";
      for (int i = 1; i < depth; ++i) text += c;
      return text + end;
    };
    EXPECT_EQ(read(nested(64)).keys().size(), 1u);
    complains(nested(65), ":1:", "nested too deeply: more than 64 levels");
  }
  complains(std::string(300'000, '['), ":1:65:", "nested too deeply");
}

TEST(JsonFile, ListsOfObjects) {
  JsonObject o = read(R"({"shards": [{"n": 1}, {"n": -2}], "one": {"n": 1}, "mixed": [{"n": 1}, 7]})");
  auto shards = o.objects("shards");
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0].count("n"), 1);
  EXPECT_THAT(message_of<DataError>([&] { shards[1].count("n"); }),
              HasSubstr("shards[1].n is -2, expected a number, 0"));
  EXPECT_THAT(message_of<DataError>([&] { o.objects("one"); }), HasSubstr("expected a list of objects"));
  EXPECT_THAT(message_of<DataError>([&] { o.objects("mixed"); }), HasSubstr("mixed[1] is 7, expected an object"));
}

}  // namespace
}  // namespace chiron
