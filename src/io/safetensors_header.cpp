#include "io/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace chiron {
namespace {

/// The header's grammar as a parser of events: a document tree of a 100 MB header would take gigabytes, and would
/// silently keep one of two equal keys.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderParser(Header& header, const std::string& file) : header_(header), file_(file) {}

  bool null() override {
    if (where_ != Where::metadata_value) fail("null");
    where_ = Where::top;
    return true;
  }
  bool boolean(bool) override { fail("true or false"); }
  bool number_integer(number_integer_t) override { fail("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::shape && where_ != Where::offsets) fail("a number");
    (where_ == Where::shape ? entry().shape : entry().offsets).push_back(value);
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override { fail("the number " + text); }
  bool binary(binary_t&) override { fail("binary data"); }

  bool string(string_t& value) override {
    if (where_ == Where::type_value) {
      entry().type = value;
      where_ = Where::entry;
    } else if (where_ == Where::metadata_text) {
      header_.metadata[key_] = value;
      where_ = Where::metadata;
    } else {
      fail("the string \"" + value + "\"");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (where_ == Where::start)
      where_ = Where::top;
    else if (where_ == Where::entry_value)
      where_ = Where::entry;
    else if (where_ == Where::metadata_value)
      where_ = Where::metadata;
    else
      fail("an object");
    return true;
  }
  bool end_object() override {
    if (where_ == Where::entry) {
      for (const char* key : {"dtype", "shape", "data_offsets"})
        if (!seen_.contains(key)) throw DataError("{}: tensor {} has no {}", file_, entry().name, key);
      if (entry().offsets.size() != 2)
        throw DataError("{}: tensor {}: data_offsets holds {} numbers, not 2", file_, entry().name,
                        entry().offsets.size());
    }
    where_ = where_ == Where::top ? Where::end : Where::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ == Where::shape_value)
      where_ = Where::shape;
    else if (where_ == Where::offsets_value)
      where_ = Where::offsets;
    else
      fail("a list");
    return true;
  }
  bool end_array() override {
    where_ = Where::entry;
    return true;
  }

  bool key(string_t& key) override {
    key_ = key;
    if (where_ == Where::top)
      top_key();
    else if (where_ == Where::entry)
      entry_key();
    else
      metadata_key();
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& e) override {
    std::string what = e.what();
    size_t colon = what.find(": ");
    throw DataError("{}: the header is no valid JSON near byte {}: {}", file_, 8 + byte,
                    colon == std::string::npos ? what : what.substr(colon + 2));
  }

 private:
  enum class Where : uint8_t {
    start,
    top,
    end,
    metadata_value,
    metadata,
    metadata_text,
    entry_value,
    entry,
    type_value,
    shape_value,
    shape,
    offsets_value,
    offsets,
  };

  HeaderEntry& entry() { return header_.entries.back(); }

  void top_key() {
    if (key_ == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) throw DataError("{}: __metadata__ stands twice", file_);
      where_ = Where::metadata_value;
      return;
    }
    if (!names_.insert(key_).second) throw DataError("{}: tensor {} stands twice", file_, key_);
    header_.entries.emplace_back().name = key_;
    seen_.clear();
    where_ = Where::entry_value;
  }

  void entry_key() {
    if (!seen_.insert(key_).second) throw DataError("{}: tensor {}: {} stands twice", file_, entry().name, key_);
    if (key_ == "dtype")
      where_ = Where::type_value;
    else if (key_ == "shape")
      where_ = Where::shape_value;
    else if (key_ == "data_offsets")
      where_ = Where::offsets_value;
    else
      throw DataError("{}: tensor {}: unknown key {}; allowed: dtype shape data_offsets", file_, entry().name, key_);
  }

  void metadata_key() {
    if (header_.metadata.contains(key_)) throw DataError("{}: __metadata__: {} stands twice", file_, key_);
    where_ = Where::metadata_text;
  }

  /// `found` stands where the grammar does not allow it.
  [[noreturn]] void fail(const std::string& found) const {
    switch (where_) {
      case Where::start:
        throw DataError("{}: the header is {}, not an object", file_, found);
      case Where::metadata_value:
        throw DataError("{}: __metadata__ is {}, expected an object of strings", file_, found);
      case Where::metadata_text:
        throw DataError("{}: __metadata__: {} is {}, expected a string", file_, key_, found);
      case Where::entry_value:
        throw DataError("{}: tensor {} is {}, expected {{dtype, shape, data_offsets}}", file_, key_, found);
      default:
        break;
    }
    std::string_view key = where_ == Where::type_value                              ? "dtype"
                           : where_ == Where::shape || where_ == Where::shape_value ? "shape"
                                                                                    : "data_offsets";
    throw DataError("{}: tensor {}: {} has {}, expected {}", file_, header_.entries.back().name, key, found,
                    where_ == Where::type_value ? "a string" : "a list of whole numbers from 0");
  }

  Header& header_;
  const std::string& file_;
  Where where_ = Where::start;
  std::string key_;
  std::set<std::string> names_, seen_;
  bool metadata_seen_ = false;
};

}  // namespace

Header parse_safetensors_header(std::string_view json, const std::string& file) {
  // The library would take a zero byte for the end of the text.
  if (size_t zero = json.find('\0'); zero != std::string_view::npos)
    throw DataError("{}: the header is no valid JSON near byte {}: a zero byte", file, 8 + zero);
  Header header;
  HeaderParser parser(header, file);
  nlohmann::json::sax_parse(json, &parser);
  return header;
}

}  // namespace chiron
