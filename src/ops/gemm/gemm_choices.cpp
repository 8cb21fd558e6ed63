#include "ops/gemm/gemm_choices.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json_file.h"

namespace chiron {
namespace {

constexpr int kCandidates = 32;
constexpr const char* kOwn = "own";

/// Memory for one product, with the alignments of another, full of random numbers.
class Trial {
 public:
  Trial(Stream& s, const Product& like) : s_(s), p_(like) {
    p_.a = place(like.a);
    p_.b = place(like.b);
    p_.c = place(like.c);
    if (like.bias.present()) p_.bias.at = place(Rows(like.bias)).at;
    if (like.addend.present()) p_.addend = like.addend.at == like.c.at ? p_.c : place(like.addend);
    workspace_ = place(workspace_rows(like)).at;
    flush_ = place(flush_rows(s));
  }

  /// Bytes that it takes.
  static int64_t bytes(Stream& s, const Product& p) {
    return bytes_of(p.a) + bytes_of(p.b) + bytes_of(p.c) + bytes_of(p.addend) + bytes_of(workspace_rows(p)) +
           bytes_of(flush_rows(s));
  }

  const Product& product() const { return p_; }
  Tensor workspace() const { return {workspace_, DType::u8, {workspace_rows(p_).cols}}; }

  /// Median seconds of a call with cold caches.
  template <class F>
  double time(int runs, F&& call) {
    Event begin(s_.device()), end(s_.device());
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
      s_.fill_bytes({flush_.at, DType::u8, {flush_.cols}}, static_cast<uint8_t>(i));
      s_.record(begin);
      call();
      s_.record(end);
      times.push_back(end.seconds_since(begin));
    }
    std::ranges::nth_element(times, times.begin() + runs / 2);
    return times[static_cast<size_t>(runs / 2)];
  }

  /// Whether two calls on the same numbers give the same bits, as far as the first megabytes of C tell.
  template <class F>
  bool repeats(F&& call) {
    constexpr int64_t kMost = 8 << 20;
    std::vector<std::byte> results[2];
    for (auto& result : results) {
      fill(p_.c);
      call();
      const int64_t bytes = std::min(kMost, bytes_of(p_.c) - kSlack);
      result.resize(static_cast<size_t>(bytes));
      s_.download(result.data(), {p_.c.at, DType::u8, {bytes}});
    }
    return results[0] == results[1];
  }

 private:
  static constexpr int64_t kSlack = 64;

  static int64_t bytes_of(const Rows& r) { return r.present() ? r.rows * r.ld * size_of(r.dtype) + kSlack : 0; }
  static Rows bytes_as_rows(int64_t bytes) { return Tensor{Stack::kAlign, DType::u8, {1, bytes}}; }
  static Rows workspace_rows(const Product& p) { return bytes_as_rows(product_scratch_bytes(p)); }
  static Rows flush_rows(Stream& s) { return bytes_as_rows(2 * s.traits().cache); }

  Rows place(Rows like) {
    const auto offset = like.at % static_cast<uintptr_t>(kSlack / 2);
    like.at = memory_.emplace_back(s_.device(), bytes_of(like)).at() + offset;
    if (like.dtype != DType::u8) fill(like);
    return like;
  }

  void fill(const Rows& r) {
    if constexpr (gpu::kBuilt) gpu::fill_random(s_, {r.at, r.dtype, {r.rows * r.ld}}, static_cast<uint32_t>(r.cols));
  }

  Stream& s_;
  Product p_;
  uintptr_t workspace_ = 0;
  Rows flush_;
  std::vector<Buffer> memory_;
};

std::string text_of(const gpu::BlasLt::Algorithm& algorithm) {
  std::string text;
  for (unsigned char byte : algorithm) text += fmt::format("{:02x}", byte);
  return text;
}

bool parse(const std::string& text, gpu::BlasLt::Algorithm& algorithm) {
  if (text.size() != 2 * algorithm.size() || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  for (size_t i = 0; i < algorithm.size(); ++i)
    algorithm[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return true;
}

}  // namespace

ProductKey::ProductKey(const Product& p, bool tf32) {
  const int64_t addend = !p.addend.present() ? 0 : p.addend.at == p.c.at ? 1 : 2;
  of = {p.m(),
        p.n(),
        p.k(),
        p.op_a == Op::none ? 'n' : 't',
        p.op_b == Op::none ? 'n' : 't',
        static_cast<int64_t>(p.a.dtype),
        static_cast<int64_t>(p.c.dtype),
        p.bias.present(),
        addend,
        tf32 && p.a.dtype == DType::f32,
        p.a.ld,
        p.b.ld,
        p.c.ld,
        addend ? p.addend.ld : 0,
        alignment_of(p.a),
        alignment_of(p.b),
        alignment_of(p.c),
        addend ? alignment_of(p.addend) : 0};
}

std::string ProductKey::text() const {
  const char* addends[] = {"", " add", " addend"};
  return fmt::format("M{} N{} K{} {}{} {} {}{}{}{} ld {} {} {} {} align {} {} {} {}", of[0], of[1], of[2],
                     static_cast<char>(of[3]), static_cast<char>(of[4]), name_of(static_cast<DType>(of[5])),
                     name_of(static_cast<DType>(of[6])), of[7] ? " bias" : "", addends[of[8]], of[9] ? " tf32" : "",
                     of[10], of[11], of[12], of[13], of[14], of[15], of[16], of[17]);
}

GemmChoices::GemmChoices(Device device) : device_(device) {
  CHECK(device.kind == DeviceKind::gpu);
  if constexpr (gpu::kBuilt) {
    device_name_ = gpu::traits(device.index).name;
    blaslt_ = gpu::BlasLt::open(device.index, why_no_library_);
  }
}

GemmChoices::~GemmChoices() = default;

std::string GemmChoices::library() const {
  return blaslt_ ? blaslt_->name() : fmt::format("own kernels ({})", why_no_library_);
}

std::string GemmChoices::machine() const {
  return fmt::format("{}, {}", device_name_, blaslt_ ? blaslt_->name() : "own kernels");
}

void GemmChoices::note(const Product& p, bool tf32) {
  const std::scoped_lock lock(mutex_);
  const ProductKey key(p, tf32);
  if (!choices_.contains(key)) noted_.try_emplace(key, Noted{p, tf32});
}

const gpu::BlasLt::Algorithm* GemmChoices::find(const Product& p, bool tf32) {
  const std::scoped_lock lock(mutex_);
  const ProductKey key(p, tf32);
  auto found = choices_.find(key);
  if (found == choices_.end()) {
    const auto known = adopted_.find(key.text());
    const bool usable = known != adopted_.end() &&
                        (known->second.own || (blaslt_ && blaslt_->accepts(p, tf32, known->second.algorithm)));
    found = choices_.emplace(key, usable ? known->second : first_guess(p, tf32)).first;
  }
  return found->second.own ? nullptr : &found->second.algorithm;
}

GemmChoices::Choice GemmChoices::first_guess(const Product& p, bool tf32) {
  const auto candidates =
      blaslt_ && p.k() > 0 ? blaslt_->candidates(p, tf32, 1) : decltype(blaslt_->candidates(p, tf32, 1)){};
  if (candidates.empty()) return {};
  return {.own = false, .algorithm = candidates[0]};
}

int GemmChoices::tune(Stream& s) {
  int timed = 0;
  for (const auto& [key, noted] : noted_) {
    const auto& [p, tf32] = noted;
    if (choices_.contains(key) || adopted_.contains(key.text()) || !blaslt_) continue;
    if (p.m() == 0 || p.n() == 0 || p.k() == 0) continue;
    if constexpr (gpu::kBuilt)
      if (gpu::free_memory(device_.index) < Trial::bytes(s, p) + (int64_t{64} << 20)) continue;
    const Choice choice = fastest(s, p, tf32);
    const std::scoped_lock lock(mutex_);
    choices_[key] = choice;
    ++timed;
  }
  noted_.clear();
  return timed;
}

GemmChoices::Choice GemmChoices::fastest(Stream& s, const Product& like, bool tf32) {
  constexpr int kFewRuns = 3, kManyRuns = 11;
  constexpr size_t kFinalists = 4;
  Trial trial(s, like);
  const Product& p = trial.product();
  std::vector<std::pair<double, Choice>> ranking = {{0, {}}};
  for (const auto& algorithm : blaslt_->candidates(p, tf32, kCandidates))
    ranking.push_back({0, {.own = false, .algorithm = algorithm}});
  auto run = [&](const Choice& choice) {
    if (!choice.own) return blaslt_->multiply(s, p, tf32, choice.algorithm, trial.workspace());
    if constexpr (gpu::kBuilt) gpu::tiled_product(s, p, choose_tiling(p), trial.workspace());
  };
  auto by_time = [](const auto& a, const auto& b) { return a.first < b.first; };
  for (auto& [seconds, choice] : ranking) {
    try {
      run(choice);  // the first call loads code
      seconds = trial.time(kFewRuns, [&] { run(choice); });
    } catch (const DeviceError&) {
      if (choice.own) throw;
      seconds = std::numeric_limits<double>::infinity();  // proposed, and then refused
    }
  }
  std::ranges::stable_sort(ranking, by_time);
  ranking.resize(std::min(ranking.size(), kFinalists));
  for (auto& [seconds, choice] : ranking)
    if (seconds < std::numeric_limits<double>::infinity()) seconds = trial.time(kManyRuns, [&] { run(choice); });
  std::ranges::stable_sort(ranking, by_time);
  for (const auto& [seconds, choice] : ranking)
    if (seconds < std::numeric_limits<double>::infinity() && (choice.own || trial.repeats([&] { run(choice); })))
      return choice;
  return {};
}

nlohmann::json GemmChoices::to_json() const {
  const std::scoped_lock lock(mutex_);
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [text, choice] : adopted_) all[text] = choice.own ? kOwn : text_of(choice.algorithm);
  for (const auto& [key, choice] : choices_) all[key.text()] = choice.own ? kOwn : text_of(choice.algorithm);
  return {{machine(), std::move(all)}};
}

void GemmChoices::adopt(const nlohmann::json& json, const std::string& source) {
  const JsonObject all(json, source);
  if (!all.has(machine())) return;
  const JsonObject here = all.object(machine());
  const std::scoped_lock lock(mutex_);
  for (const std::string& key : here.keys()) {
    Choice choice;
    const std::string text = here.text(key);
    choice.own = text == kOwn;
    if (!choice.own && !parse(text, choice.algorithm))
      throw DataError(
          "{}: {} of {} is '{}': it is '{}' or the 128 hex digits of an algorithm. Delete the file to have "
          "products timed anew",
          source, key, machine(), text, kOwn);
    adopted_[key] = choice;
  }
}

void GemmChoices::load(const std::string& path) {
  if (std::filesystem::exists(path)) adopt(JsonObject::read(path).value(), path);
}

void GemmChoices::save(const std::string& path) const {
  nlohmann::json all = nlohmann::json::object();
  if (std::filesystem::exists(path)) all = JsonObject::read(path).value();
  all.update(to_json());
  FileWriter file(path, FileWriter::Mode::replace);
  file.write(all.dump(1) + "\n");
  file.close();
}

}  // namespace chiron
