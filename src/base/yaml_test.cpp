#include "base/yaml.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/temp_dir.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::string& text) {
  try {
    parse_yaml(text, "f.yaml");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Yaml, ScalarsAreTextWithAPlace) {
  YamlNode node = parse_yaml("a: 010\nb:\n  - yes\n  - \"x: y\"\nc:\n", "f.yaml");
  ASSERT_EQ(node.keys.size(), 3u);
  EXPECT_EQ(node.values[0].text, "010");
  EXPECT_EQ(node.values[0].place, "f.yaml:1:4");
  EXPECT_FALSE(node.values[0].quoted);
  ASSERT_EQ(node.values[1].values.size(), 2u);
  EXPECT_EQ(node.values[1].values[0].text, "yes");
  EXPECT_EQ(node.values[1].values[1].place, "f.yaml:4:5");
  EXPECT_TRUE(node.values[1].values[1].quoted);
  EXPECT_TRUE(node.values[2].is(YamlNode::Kind::empty));
  EXPECT_EQ(node.values[2].place, "f.yaml:5:1") << "nothing stands where its key stands";
}

TEST(Yaml, DuplicateKeysAreErrorsAtBothPlaces) {
  std::string error = error_of("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n");
  EXPECT_THAT(error, HasSubstr("f.yaml:5:3: duplicate key c"));
  EXPECT_THAT(error, HasSubstr("f.yaml:3:3"));
}

TEST(Yaml, WhatIsNoPlainDocumentIsRefused) {
  EXPECT_THAT(error_of("a: [1, 2\nb: 3\n"), HasSubstr("no valid YAML"));
  EXPECT_THAT(error_of("a: 1\n\tb: 2\n"),
              AllOf(HasSubstr("f.yaml:2:"), HasSubstr("line 2 has a tab, and YAML is indented with blanks")));
  EXPECT_THAT(error_of("a:\n\tb: 2\n"), HasSubstr("line 2 has a tab"));
  EXPECT_THAT(error_of("a: 1\n---\nb: 2\n"), HasSubstr("2 YAML documents"));
  EXPECT_THAT(error_of("? [a, b]\n: 1\n"), HasSubstr("f.yaml:1:3: a key must be a plain word"));
  EXPECT_THAT(error_of("a: !!int 5\n"), HasSubstr("tag"));
  EXPECT_THAT(error_of(std::string("a: 1\0b", 6)), HasSubstr("byte 4 is zero"));
  EXPECT_THAT(error_of(std::string((1 << 20) + 1, '#')), HasSubstr("too large"));
  EXPECT_THAT(error_of(std::string(5000, '[')), HasSubstr("f.yaml"));
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) bomb += fmt::format("a{}: &a{} [*a{}, *a{}]\n", i, i, i - 1, i - 1);
  EXPECT_THAT(error_of(bomb), HasSubstr("too large"));
}

TEST(Yaml, EmptyDocumentsAreEmpty) {
  EXPECT_TRUE(parse_yaml("", "f").is(YamlNode::Kind::empty));
  EXPECT_TRUE(parse_yaml("# nothing\n", "f").is(YamlNode::Kind::empty));
}

TEST(Yaml, FilesThatCannotBeReadAreIoErrors) {
  TempDir dir;
  EXPECT_THROW(read_yaml(dir / "missing.yaml"), IoError);
  EXPECT_THROW(read_yaml(dir.path()), IoError);
}

TEST(Yaml, StringsReadBack) {
  for (std::string text : {"",      "a",           "data/train",  "true",  "No", "010", "1e5",
                           "a b",   " a",          "a: b",        "#x",    "-",  "~",   "null",
                           "\"q\"", "back\\slash", "line\nbreak", "tab\t", "*a", "[x]", "\xc3\xa9t\xc3\xa9",
                           "a,b"}) {
    YamlNode block = parse_yaml("k: " + yaml_string(text) + "\n", "f");
    ASSERT_EQ(block.values.size(), 1u) << text;
    EXPECT_EQ(block.values[0].text, text);
    YamlNode flow = parse_yaml("k: [" + yaml_string(text) + ", z]\n", "f");
    ASSERT_EQ(flow.values[0].values.size(), 2u) << text;
    EXPECT_EQ(flow.values[0].values[0].text, text);
  }
}

}  // namespace
}  // namespace chiron
