#include "base/schema.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/schema_docs.h"

namespace chiron {
namespace {

using testing::HasSubstr;
using testing::Not;

enum class Color : uint8_t { red, green };
constexpr std::array<std::string_view, 2> names_of(Color) { return {"red", "green"}; }

struct Inner {
  double rate = 0.5;
  Color color = Color::green;
  void describe(Schema& s) {
    s.option("rate", rate, "A rate.").above(0).below(1);
    s.option("color", color, "A color.").changeable();
  }
};

struct Outer {
  int64_t count = 3;
  bool on = false;
  std::string name;
  std::vector<std::string> files;
  Inner inner;
  void describe(Schema& s) {
    s.option("count", count, "A count | with a bar.").at_least(1).at_most(10000).unit("steps");
    s.option("on", on, "A switch.");
    s.option("name", name, "A name.");
    s.option("files", files, "Files.").changeable();
    s.group("inner", inner, "The inner ones.");
  }
};

Outer read(const std::string& text) {
  Outer outer;
  Schema schema(outer);
  schema.read(parse_yaml(text, "f.yaml"));
  return outer;
}

std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  Outer outer;
  Schema schema(outer);
  try {
    schema.read(parse_yaml(text, "f.yaml"));
    for (const std::string& set : sets) schema.set(set);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Schema, ReadsEveryType) {
  Outer o = read("count: 5k\non: true\nname: 12\nfiles: [a, \"b c\"]\ninner:\n  rate: 1e-4\n  color: red\n");
  EXPECT_EQ(o.count, 5000);
  EXPECT_TRUE(o.on);
  EXPECT_EQ(o.name, "12");
  EXPECT_EQ(o.files, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(o.inner.rate, 1e-4);
  EXPECT_EQ(o.inner.color, Color::red);
  EXPECT_EQ(read("files: one").files, std::vector<std::string>{"one"});
  EXPECT_EQ(read("inner:\n").inner.rate, 0.5) << "a group without options is no error";
  EXPECT_EQ(read("").count, 3);
}

TEST(Schema, UnknownKeysNameTheNearest) {
  EXPECT_THAT(error_of("cuont: 1\n"), HasSubstr("f.yaml:1:1: there is no option cuont; did you mean count?"));
  EXPECT_THAT(error_of("on: true\ninner:\n  rtae: 1\n"),
              HasSubstr("f.yaml:3:3: there is no option inner.rtae; did you mean rate? inner takes rate, color"));
  EXPECT_THAT(error_of("rate: 1\n"), HasSubstr("did you mean inner.rate?")) << "the right name in the wrong group";
  EXPECT_THAT(error_of("zzzzzzzz: 1\n"), HasSubstr("takes count, on, name, files, inner"));
  EXPECT_THAT(error_of("inner:\n  <<: 3\n"), HasSubstr("f.yaml:2:3: there is no option inner.<<"));
}

TEST(Schema, ErrorsGivePlaceValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of("count: 0\n"), "f.yaml:1:8: count: 0 is out of range; allowed: a whole number from 1 to 10000");
  EXPECT_EQ(error_of("on: true\ninner: {rate: 1}\n"),
            "f.yaml:2:15: inner.rate: 1 is out of range; allowed: a number > 0 and < 1");
  EXPECT_EQ(error_of("inner:\n  color: gren\n"),
            "f.yaml:2:10: inner.color: gren is no choice: did you mean green?; allowed: one of red, green");
  EXPECT_THAT(error_of("count: 010\n"), HasSubstr("f.yaml:1:8: count: 010 has a leading zero"));
  EXPECT_THAT(error_of("count: 1_000\n"), HasSubstr("write 1000"));
  EXPECT_THAT(error_of("count: \"5\"\n"), HasSubstr("in quotes"));
  EXPECT_THAT(error_of("count: [5]\n"), HasSubstr("a list stands where a single value belongs"));
  EXPECT_THAT(error_of("count: {a: 5}\n"), HasSubstr("a map stands where"));
  EXPECT_THAT(error_of("count:\n"), HasSubstr("f.yaml:1:1: count: nothing stands where"));
  EXPECT_THAT(error_of("name:\n"), HasSubstr("write \"\" for an empty string"));
  EXPECT_THAT(error_of("files: {a: 1}\n"), HasSubstr("a map stands where a list belongs"));
  EXPECT_THAT(error_of("files: [a, [b]]\n"), HasSubstr("f.yaml:1:12: files: a list stands where a string belongs"));
  EXPECT_THAT(error_of("inner: 5\n"), HasSubstr("f.yaml:1:8: inner is a group of options, not a value (5)"));
  EXPECT_THAT(error_of("count: 1\ncount: 2\n"), HasSubstr("f.yaml:2:1: duplicate key count"));
  EXPECT_EQ(error_of("inner: {rate: 0.5}\ninner.rate: 0.25\n"),
            "f.yaml:2:1: inner.rate: keys of a file have no dots, which are for --set; nest it: inner: {rate: ...}");
  EXPECT_THAT(error_of("- a\n"), HasSubstr("a configuration is a map"));
  EXPECT_THAT(error_of("inner: {rate: nan}\n"), HasSubstr("nan is not finite"));
}

TEST(Schema, TruthValuesAreTrueAndFalse) {
  for (const char* text : {"yes", "on", "True", "TRUE", "y", "1"}) {
    EXPECT_THAT(error_of(fmt::format("on: {}\n", text)), HasSubstr("write true; allowed: true or false")) << text;
  }
  for (const char* text : {"no", "off", "False", "n", "0"}) {
    EXPECT_THAT(error_of(fmt::format("on: {}\n", text)), HasSubstr("write false")) << text;
  }
  EXPECT_THAT(error_of("on: maybe\n"), HasSubstr("maybe is no truth value"));
}

TEST(Schema, SetGoesThroughTheSameChecks) {
  Outer o;
  Schema schema(o);
  for (const char* set : {"count=7", "inner.rate=0.25", "name=a: b # c", "files=[a, b]", "on=true", "count=9"}) {
    schema.set(set);
  }
  EXPECT_EQ(o.count, 9);
  EXPECT_EQ(o.inner.rate, 0.25);
  EXPECT_EQ(o.name, "a: b # c") << "a string needs no quotes";
  EXPECT_EQ(o.files, (std::vector<std::string>{"a", "b"}));
  schema.set("files=a,b");
  EXPECT_EQ(o.files, std::vector<std::string>{"a,b"});
  schema.set("name=");
  EXPECT_EQ(o.name, "");
  EXPECT_EQ(schema.find("count")->place(), "--set count=9");
  EXPECT_EQ(schema.find("inner.color")->place(), "");

  EXPECT_EQ(error_of("", {"count=0"}),
            "--set count=0: count: 0 is out of range; allowed: a whole number from 1 to 10000");
  EXPECT_THAT(error_of("", {"count="}), HasSubstr("\"\" is no whole number"));
  EXPECT_THAT(error_of("", {"cuont=1"}), HasSubstr("did you mean count?"));
  EXPECT_THAT(error_of("", {"iner.rate=1"}), HasSubstr("did you mean inner.rate?"));
  EXPECT_THAT(error_of("", {"inner.rtae=1"}), HasSubstr("did you mean rate?"));
  EXPECT_THAT(error_of("", {"inner=1"}), HasSubstr("inner is a group"));
  EXPECT_THAT(error_of("", {"count"}), HasSubstr("expected OPTION=VALUE"));
  EXPECT_THAT(error_of("", {"=3"}), HasSubstr("expected OPTION=VALUE"));
  EXPECT_THAT(error_of("", {"on=yes"}), HasSubstr("write true"));
}

TEST(Schema, DumpReadsBack) {
  Outer o = read("count: 12\nname: \"a: 'b'\"\nfiles: [x, \"y z\"]\ninner: {rate: 0.125, color: red}\n");
  std::string text = Schema(o).dump();
  EXPECT_EQ(text, "count: 12\non: false\nname: \"a: 'b'\"\nfiles: [x, \"y z\"]\ninner:\n  rate: 0.125\n  color: red\n");
  Outer again = read(text);
  EXPECT_EQ(Schema(again).dump(), text);
}

TEST(Schema, DifferencesAndFingerprintKnowWhatMayChange) {
  Outer a, b;
  b.files = {"x"};
  b.inner.color = Color::red;
  EXPECT_TRUE(differences(Schema(a), Schema(b)).empty());
  EXPECT_EQ(fingerprint(Schema(a)), fingerprint(Schema(b)));
  b.inner.rate = 0.75;
  auto found = differences(Schema(a), Schema(b));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "inner.rate");
  EXPECT_EQ(found[0].before, "0.5");
  EXPECT_EQ(found[0].now, "0.75");
  EXPECT_NE(fingerprint(Schema(a)), fingerprint(Schema(b)));
  EXPECT_EQ(fingerprint(Schema(a)).size(), 32u);
}

TEST(Schema, DefaultsAreThoseOfAFreshStruct) {
  Outer o = read("count: 12\n");
  Schema schema(o);
  EXPECT_EQ(schema.options()[0]->yaml(), "12");
  EXPECT_EQ(schema.default_of(0), "3");
}

TEST(Schema, DocumentsNameEveryOption) {
  Outer o;
  Schema schema(o);
  auto json = nlohmann::json::parse(schema_json(schema, "T"));
  EXPECT_EQ(json["additionalProperties"], false);
  EXPECT_EQ(json["properties"]["inner"]["additionalProperties"], false);
  EXPECT_EQ(json["properties"]["inner"]["properties"]["color"]["enum"].size(), 2u);
  EXPECT_EQ(json["properties"]["count"]["anyOf"][0]["minimum"], 1);
  EXPECT_EQ(json["properties"]["inner"]["properties"]["rate"]["anyOf"][0]["exclusiveMaximum"], 1.0);
  std::string markdown = schema_markdown(schema), text = schema_text(schema);
  for (const auto& option : schema.options()) {
    EXPECT_THAT(markdown, HasSubstr("| `" + option->key() + "` |"));
    EXPECT_THAT(text, HasSubstr("  " + option->key() + " = "));
  }
  EXPECT_THAT(markdown, HasSubstr("A count \\| with a bar."));
  EXPECT_THAT(markdown, HasSubstr("in steps"));
}

TEST(Schema, StarterReadsBackAndShowsDefaultsAsComments) {
  Outer o;
  o.count = 4;
  std::string text = schema_starter(Schema(o));
  EXPECT_THAT(text, HasSubstr("\ncount: 4\n"));
  EXPECT_THAT(text, HasSubstr("\n  #rate: 0.5\n"));
  Outer again = read(text);
  EXPECT_EQ(Schema(again).dump(), Schema(o).dump());
  std::string live = text;
  for (const char* key : {"on", "name", "files", "rate", "color"}) {
    size_t at = live.find(std::string("#") + key + ":");
    ASSERT_NE(at, std::string::npos) << key;
    live.erase(at, 1);
  }
  EXPECT_EQ(Schema(o).dump(), [&] {
    Outer all = read(live);
    return Schema(all).dump();
  }()) << "what is commented out is right when it is not";
}

}  // namespace
}  // namespace chiron
