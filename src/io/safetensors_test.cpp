#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "io/box_copy.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A file with this header and this many bytes of data.
std::string file_text(const std::string& header, size_t data_bytes) {
  uint64_t size = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &size, 8);
  return text + header + std::string(data_bytes, 'x');
}

struct Safetensors : testing::Test {
  TempDir dir;
  std::string path = dir / "f.safetensors";

  std::string open_text(const std::string& text) {
    write_file(path, text);
    return message_of<DataError>([&] { SafetensorsFile file(path); });
  }
  std::string open(const std::string& header, size_t data_bytes) { return open_text(file_text(header, data_bytes)); }
};

StatePart part_of(std::string name, View memory, Shape disk, bool transposed = false) {
  return {std::move(name), Rows(memory), transposed, whole(disk), disk};
}

template <class T>
View view(const std::vector<T>& v, Shape shape) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), shape};
}

TEST_F(Safetensors, WhatTheFormatAllows) {
  EXPECT_EQ(open("{}", 0), "no error");
  EXPECT_EQ(open("{}       ", 0), "no error") << "padding";
  EXPECT_EQ(open(R"({"__metadata__":null})", 0), "no error");
  EXPECT_EQ(open(R"({"__metadata__":{}})", 0), "no error");
  EXPECT_EQ(open(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "no error") << "scalar";
  EXPECT_EQ(open(R"({"z":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]},
                     "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                 8),
            "no error")
      << "no elements";
  EXPECT_EQ(open(R"({"b":{"data_offsets":[1,3],"shape":[1],"dtype":"F16"},
                     "a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"__metadata__":{"k":"v"}})",
                 3),
            "no error")
      << "any order of keys and tensors";
  SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("k"), "v");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_FALSE(file.tensors()[0].dtype.has_value());
  EXPECT_EQ(file.at("b").dtype, DType::f16);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THAT(message_of<DataError>([&] { file.at("c"); }), AllOf(HasSubstr(path), HasSubstr("no tensor c")));
  EXPECT_EQ(open(R"({"q":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3), "no error");
  EXPECT_EQ(open(R"({"\u00e9\n":{"dtype":"U64","shape":[1,1,1,1,1],"data_offsets":[0,8]}})", 8), "no error");
}

TEST_F(Safetensors, BrokenFrames) {
  EXPECT_THAT(open_text(""), AllOf(HasSubstr(path), HasSubstr("0 bytes")));
  EXPECT_THAT(open_text("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(open_text("This is a text file, not a table of tensors."), HasSubstr("at most 100000000"));
  std::string text(8, '\0');
  uint64_t size = 100'000'001;
  std::memcpy(text.data(), &size, 8);
  EXPECT_THAT(open_text(text), HasSubstr("100000001"));
  size = ~uint64_t{0};
  std::memcpy(text.data(), &size, 8);
  EXPECT_THAT(open_text(text + "{}"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(open_text(file_text("{}", 0).substr(0, 9)), HasSubstr("cut short"));
  EXPECT_THAT(open(" {}", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(open("", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(open("[]", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(open("{", 0), HasSubstr("JSON"));
  EXPECT_THAT(open("{}x", 0), HasSubstr("JSON"));
  EXPECT_THAT(open("{\"\xff\":1}", 0), HasSubstr("JSON"));
  EXPECT_THAT(open(std::string("{}\0", 3), 0), HasSubstr("JSON"));
  EXPECT_THAT(open("{}", 3), HasSubstr("3 bytes after the last tensor"));
}

TEST_F(Safetensors, BrokenEntries) {
  struct Case {
    const char* entry;
    const char* says;
  };
  const Case cases[] = {
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "takes 8 bytes"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,12]})", "takes 8 bytes"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "backwards"},
      {R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})", "pass the file's end"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[18446744073709551608,18446744073709551615]})", "pass the file"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})", "a hole of 4 bytes"},
      {R"({"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "too large"},
      {R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "too large"},
      {R"({"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]})", "too large"},
      {R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,0]})", "99999999999999999999"},
      {R"({"dtype":"F128","shape":[1],"data_offsets":[0,16]})", "unknown dtype F128"},
      {R"({"dtype":"f32","shape":[3],"data_offsets":[0,12]})", "unknown dtype f32"},
      {R"({"dtype":"F4","shape":[3],"data_offsets":[0,12]})", "3 elements of 4 bits"},
      {R"({"dtype":"F32","shape":[-3],"data_offsets":[0,12]})", "a negative number"},
      {R"({"dtype":"F32","shape":[3.0],"data_offsets":[0,12]})", "3.0"},
      {R"({"dtype":"F32","shape":["3"],"data_offsets":[0,12]})", "shape has the string"},
      {R"({"dtype":"F32","shape":[[3]],"data_offsets":[0,12]})", "shape has a list"},
      {R"({"dtype":"F32","shape":3,"data_offsets":[0,12]})", "shape has a number"},
      {R"({"dtype":"F32","shape":null,"data_offsets":[0,12]})", "shape has null"},
      {R"({"dtype":32,"shape":[3],"data_offsets":[0,12]})", "dtype has a number"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0]})", "holds 1 numbers"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,12,12]})", "holds 3 numbers"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":{}})", "data_offsets has an object"},
      {R"({"dtype":"F32","shape":[3]})", "no data_offsets"},
      {R"({"dtype":"F32","data_offsets":[0,12]})", "no shape"},
      {R"({"shape":[3],"data_offsets":[0,12]})", "no dtype"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,12],"x":"y"})", "unknown key x"},
      {R"({"dtype":"F32","shape":[3],"shape":[3],"data_offsets":[0,12]})", "shape stands twice"},
      {R"(7)", "is a number"},
      {R"("F32")", "is the string"},
      {R"([1])", "is a list"},
      {R"(null)", "is null"},
      {R"(true)", "is true or false"},
  };
  for (const Case& c : cases)
    EXPECT_THAT(open(std::string(R"({"layer.w":)") + c.entry + "}", 12),
                AllOf(HasSubstr(path), HasSubstr("tensor layer.w"), HasSubstr(c.says)))
        << c.entry;
}

TEST_F(Safetensors, BrokenTables) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(open("{" + a + "," + a + "}", 8), HasSubstr("tensor a stands twice"));
  EXPECT_THAT(open("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
              HasSubstr("a and b overlap"));
  EXPECT_THAT(open("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("a and b overlap"));
  EXPECT_THAT(open("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16),
              AllOf(HasSubstr("tensor b"), HasSubstr("a hole of 4 bytes")));
  EXPECT_THAT(open("{" + a + "}", 9), HasSubstr("1 bytes after"));
  EXPECT_THAT(open(R"({"__metadata__":{"a":1}})", 0), AllOf(HasSubstr("__metadata__: a is"), HasSubstr("a string")));
  EXPECT_THAT(open(R"({"__metadata__":{"a":null}})", 0), HasSubstr("__metadata__: a is null"));
  EXPECT_THAT(open(R"({"__metadata__":"x"})", 0), HasSubstr("__metadata__ is the string"));
  EXPECT_THAT(open(R"({"__metadata__":{"a":"1","a":"2"}})", 0), HasSubstr("a stands twice"));
  EXPECT_THAT(open(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("__metadata__ stands twice"));
  EXPECT_THAT(open("{" + std::string(100000, '[') + "}", 0), HasSubstr("JSON"));
}

TEST_F(Safetensors, RandomDamageNeverPassesUnchecked) {
  // Whatever stands in the header, opening either throws a DataError or gives tensors that lie within the file.
  std::vector<float> w(24, 1.0f), b(4, 2.0f);
  std::vector<StatePart> parts = {part_of("w", view(w, {4, 6}), {4, 6}), part_of("b", view(b, {4}), {4})};
  write_safetensors_file(path, parts);
  const std::string good = read_file(path);
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int k = 0; k < 1 + round % 3; ++k)
      text[random() % (good.size() - 112)] =
          static_cast<char>(round % 2 ? random() : "0123456789[]{},:\""[random() % 17]);
    if (round % 5 == 0) text.resize(random() % text.size());
    remove_file(path);  // shortening a file in place waits for the disk on ext4
    FileWriter out(path);
    out.write(text);
    out.close();
    try {
      SafetensorsFile file(path);
      for (const StoredTensor& t : file.tensors()) {
        ASSERT_GE(t.bytes, 0);
        ASSERT_LE(t.at + t.bytes, std::ssize(text));
      }
    } catch (const DataError&) {
    }
  }
}

template <class T>
void round_trip(const std::string& path) {
  std::vector<T> w(6 * 5), s(1);
  for (size_t i = 0; i < w.size(); ++i) {
    if constexpr (std::is_integral_v<T>)
      w[i] = static_cast<T>(i * 37 + 1);
    else
      w[i] = T(static_cast<float>(i) * 0.37f - 4);
  }
  s[0] = w[7];
  std::vector<StatePart> parts = {part_of("w", view(w, {6, 5}), {6, 5}), part_of("scalar", view(s, {}), {}),
                                  part_of("none", view(s, {0, 3}), {0, 3})};
  write_safetensors_file(path, parts);
  SafetensorsFile file(path);
  EXPECT_EQ(file.at("w").dtype, dtype_of<T>());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::vector<T> w2(w.size()), s2(1);
  file.read(part_of("w", view(w2, {6, 5}), {6, 5}));
  file.read(part_of("scalar", view(s2, {}), {}));
  file.read(part_of("none", view(s2, {0, 3}), {0, 3}));
  EXPECT_EQ(std::memcmp(w.data(), w2.data(), w.size() * sizeof(T)), 0) << name_of(dtype_of<T>());
  EXPECT_EQ(std::memcmp(s.data(), s2.data(), sizeof(T)), 0);
}

TEST_F(Safetensors, RoundTripOfEveryType) {
  round_trip<float>(path);
  round_trip<bf16>(path);
  round_trip<f16>(path);
  round_trip<double>(path);
  round_trip<int64_t>(path);
  round_trip<int32_t>(path);
  round_trip<uint16_t>(path);
  round_trip<uint8_t>(path);
  std::vector<uint8_t> bits = {0, 1, 0x7f, 0x80, 0xff, 0x3c}, back(6);
  for (DType type : {DType::e4m3, DType::e5m2}) {
    StatePart part = part_of("w", View{reinterpret_cast<uintptr_t>(bits.data()), type, {2, 3}}, {2, 3});
    write_safetensors_file(path, std::span(&part, 1));
    part.data.at = reinterpret_cast<uintptr_t>(back.data());
    SafetensorsFile(path).read(part);
    EXPECT_EQ(back, bits);
  }
}

TEST_F(Safetensors, OrderAndPaddingOfTheReferenceWriter) {
  std::vector<float> f(4);
  std::vector<int64_t> i(2);
  std::vector<bf16> h(3);
  std::vector<StatePart> parts = {part_of("b", view(f, {4}), {4}), part_of("z", view(i, {2}), {2}),
                                  part_of("a", view(f, {2, 2}), {2, 2}), part_of("h", view(h, {3}), {3})};
  write_safetensors_file(path, parts, std::nullopt, {{"more", "x\"y"}});
  std::string text = read_file(path);
  std::string header =
      R"({"__metadata__":{"format":"pt","more":"x\"y"},"z":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]},)"
      R"("b":{"dtype":"F32","shape":[4],"data_offsets":[32,48]},)"
      R"("h":{"dtype":"BF16","shape":[3],"data_offsets":[48,54]}})";
  uint64_t size = 0;
  std::memcpy(&size, text.data(), 8);
  EXPECT_EQ(size % 8, 0u);
  EXPECT_LT(size - header.size(), 8u);
  EXPECT_EQ(text.substr(8, header.size()), header);
  EXPECT_EQ(text.size(), 8 + size + 54);
}

TEST_F(Safetensors, TransposedStridedNarrowedInBlocks) {
  // Memory: 700 rows of 1500 columns, 1504 apart (several blocks); on disk the transpose, in bf16.
  const int64_t rows = 700, cols = 1500, ld = 1504;
  std::vector<float> memory(static_cast<size_t>(rows * ld), -1), back(memory.size(), -1);
  std::mt19937 random(7);
  for (float& x : memory) x = std::normal_distribution<float>()(random);
  StatePart part{"w", {}, true, whole({cols, rows}), {cols, rows}};
  part.data = Rows(View{reinterpret_cast<uintptr_t>(memory.data()), DType::f32, {rows, ld}}).columns(0, cols);
  write_safetensors_file(path, std::span(&part, 1), DType::bf16);
  SafetensorsFile file(path);
  EXPECT_EQ(file.at("w").type, "BF16");
  EXPECT_EQ(shape_of(file.at("w"), path), (Shape{cols, rows}));
  part.data.at = reinterpret_cast<uintptr_t>(back.data());
  file.read(part);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < ld; ++c) {
      auto i = static_cast<size_t>(r * ld + c);
      ASSERT_EQ(back[i], c < cols ? static_cast<float>(bf16(memory[i])) : -1.0f) << r << " " << c;
    }
}

TEST_F(Safetensors, PartsOfOneNameAreOneTensor) {
  // q, k and v: 3 x (4 rows of 6) in one memory block of another order, on disk columns of one (6, 12) tensor.
  std::vector<float> memory(12 * 6);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  std::vector<StatePart> parts;
  Rows all = Rows(view(memory, {12, 6}));
  for (int64_t p : {1, 0, 2})
    parts.push_back({"c_attn", all.slice(4 * p, 4 * p + 4), true, {{0, 4 * p}, {6, 4}}, {6, 12}});
  write_safetensors_file(path, parts);
  std::vector<float> disk(72), back(72);
  SafetensorsFile file(path);
  file.read(part_of("c_attn", view(disk, {6, 12}), {6, 12}));
  for (size_t i = 0; i < 6; ++i)
    for (size_t o = 0; o < 12; ++o) EXPECT_EQ(disk[i * 12 + o], memory[o * 6 + i]);
  for (StatePart& p : parts) {
    p.data.at += reinterpret_cast<uintptr_t>(back.data()) - reinterpret_cast<uintptr_t>(memory.data());
    file.read(p);
  }
  EXPECT_EQ(back, memory);

  std::vector<StatePart> hole(parts.begin(), parts.begin() + 1);
  hole.push_back(parts[2]);
  EXPECT_NO_THROW(tensors_to_write(hole)) << "k and v are a box";
  hole[0] = parts[1];
  EXPECT_THROW(tensors_to_write(hole), Bug) << "q and v leave a hole";
  hole[1] = parts[1];
  EXPECT_THROW(tensors_to_write(hole), Bug) << "twice the same part";
}

TEST_F(Safetensors, ReadingRefusesOtherShapesAndTypes) {
  std::vector<float> w(6);
  std::vector<int64_t> ids(6);
  std::vector<StatePart> parts = {part_of("w", view(w, {2, 3}), {2, 3}), part_of("ids", view(ids, {6}), {6})};
  write_safetensors_file(path, parts);
  SafetensorsFile file(path);
  EXPECT_THAT(message_of<DataError>([&] {
                file.read(part_of("w", view(w, {3, 2}), {3, 2}));
              }),
              AllOf(HasSubstr(path), HasSubstr("tensor w"), HasSubstr("(2, 3), expected (3, 2)")));
  EXPECT_THAT(message_of<DataError>([&] { file.read(part_of("w", view(w, {6}), {6})); }),
              HasSubstr("(2, 3), expected (6)"));
  EXPECT_THAT(message_of<DataError>([&] { file.read(part_of("ids", view(w, {6}), {6})); }), HasSubstr("I64"));
  EXPECT_THAT(message_of<DataError>([&] { file.read(part_of("x", view(w, {6}), {6})); }), HasSubstr("no tensor x"));
  open(R"({"m":{"dtype":"BOOL","shape":[1,1,1,2,3],"data_offsets":[0,6]}})", 6);
  SafetensorsFile mask(path);
  EXPECT_THAT(message_of<DataError>([&] { mask.read(part_of("m", view(w, {6}), {6})); }),
              HasSubstr("more than 4 dimensions"));
}

TEST_F(Safetensors, PartsOfATensorOfManyDimensions) {
  const Shape shape{5, 4, 3, 7};
  std::vector<float> all(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const StatePart stored = part_of("w", View{reinterpret_cast<uintptr_t>(all.data()), DType::f32, {60, 7}}, shape);
  write_safetensors_file(path, std::span(&stored, 1));
  SafetensorsFile file(path);
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    StatePart part{"w", {}, false, whole(shape), shape};
    for (int i = 0; i < 4; ++i) {
      part.part.offset[i] = static_cast<int64_t>(random() % static_cast<uint32_t>(shape[i]));
      part.part.size[i] = 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(shape[i] - part.part.offset[i]));
    }
    const Shape& size = part.part.size;
    std::vector<double> got(static_cast<size_t>(size.numel()));
    part.data = Rows(View{reinterpret_cast<uintptr_t>(got.data()), DType::f64, {size.numel() / size[3], size[3]}});
    file.read(part);
    std::vector<float> same(got.size());
    part.data.at = reinterpret_cast<uintptr_t>(same.data());
    part.data.dtype = DType::f32;
    file.read(part);
    size_t at = 0;
    for (int64_t i = 0; i < size[0]; ++i)
      for (int64_t j = 0; j < size[1]; ++j)
        for (int64_t k = 0; k < size[2]; ++k)
          for (int64_t l = 0; l < size[3]; ++l, ++at) {
            const Shape& o = part.part.offset;
            const int64_t want = (((o[0] + i) * 4 + o[1] + j) * 3 + o[2] + k) * 7 + o[3] + l;
            ASSERT_EQ(got[at], static_cast<double>(want));
            ASSERT_EQ(same[at], static_cast<float>(want));
          }
  }
}

TEST_F(Safetensors, OneThatIsCutShortWhileItIsReadIsNamed) {
  std::vector<float> w(100'000), narrow(10);
  std::vector<StatePart> parts = {part_of("a", view(narrow, {10}), {10}),
                                  part_of("w", view(w, {100, 1000}), {100, 1000})};
  write_safetensors_file(path, parts);
  SafetensorsFile file(path);
  ASSERT_EQ(::truncate(path.c_str(), 200'000), 0);
  file.read(parts[0]);
  std::vector<double> wide(w.size());
  const StatePart same = parts[1], converted = part_of("w", view(wide, {100, 1000}), {100, 1000}),
                  transposed = part_of("w", view(w, {1000, 100}), {100, 1000}, true);
  for (const StatePart& part : {same, converted, transposed})
    EXPECT_THAT(message_of<IoError>([&] { file.read(part); }),
                AllOf(HasSubstr(path), HasSubstr("something has cut it short")));
}

TEST_F(Safetensors, NamesThatAreNoText) {
  std::vector<float> w(1);
  StatePart part = part_of("\xff", view(w, {1}), {1});
  EXPECT_THAT(message_of<DataError>([&] { write_safetensors_file(path, std::span(&part, 1)); }), HasSubstr("UTF-8"));
  EXPECT_FALSE(file_exists(path));
}

TEST_F(Safetensors, FullDiskNamesTheFileAndKeepsTheOld) {
  std::vector<float> w(1 << 20);
  StatePart part = part_of("w", view(w, {1 << 20}), {1 << 20});
  set_file_faults({});
  write_safetensors_file(path, std::span(&part, 1));
  const int64_t operations = file_operations();
  EXPECT_GT(operations, 5);
  // The last operation syncs the folder: by then the new file stands in its place.
  for (int64_t n = 1; n < operations; ++n) {
    write_file(path, "old");
    set_file_faults({.fail_at = n, .lasting = true});
    std::string message = "no error";
    try {
      write_safetensors_file(path, std::span(&part, 1));
    } catch (const IoError& e) {
      message = e.what();
    }
    set_file_faults({});
    EXPECT_THAT(message, AllOf(HasSubstr(path), HasSubstr("disk is full"))) << n;
    EXPECT_EQ(read_file(path), "old") << n;
    EXPECT_EQ(list_directory(dir.path()).size(), 1u) << n;
  }
}

TEST(SafetensorsGolden, RealFiles) {
  for (const char* name : {"gpt2", "llama", "llama3_rope_tied"}) {
    std::string folder = std::string(CHIRON_SOURCE_DIR) + "/tests/golden/" + name;
    SafetensorsFile model(folder + "/model.safetensors"), expected(folder + "/expected.safetensors");
    EXPECT_EQ(model.metadata().at("format"), "pt");
    int64_t parameters = 0;
    for (const StoredTensor& t : model.tensors()) {
      EXPECT_EQ(shape_of(expected.at("grad." + t.name), folder), shape_of(t, folder));
      parameters += t.bytes / 4;
    }
    EXPECT_GT(parameters, 60000);
    Shape ids_shape = shape_of(expected.at("input_ids"), folder);
    std::vector<int64_t> ids(static_cast<size_t>(ids_shape.numel()), -1);
    expected.read(part_of("input_ids", view(ids, ids_shape), ids_shape));
    for (int64_t id : ids) EXPECT_TRUE(id >= 0 && id < 131) << id;

    // Written again from what was read, the file is the same byte for byte, as the reference writer made it.
    std::vector<std::vector<float>> values;
    std::vector<StatePart> parts;
    for (const StoredTensor& t : model.tensors()) {
      values.emplace_back(static_cast<size_t>(t.bytes / 4));
      Shape shape = shape_of(t, folder);
      parts.push_back(part_of(t.name, view(values.back(), shape), shape));
      model.read(parts.back());
    }
    TempDir dir;
    write_safetensors_file(dir / "again", parts);
    EXPECT_TRUE(read_file(dir / "again") == read_file(folder + "/model.safetensors")) << name;
  }
}

}  // namespace
}  // namespace chiron
