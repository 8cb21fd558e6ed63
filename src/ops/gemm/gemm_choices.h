#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ops/gemm/gemm_blaslt.h"

namespace chiron {

/// What decides which algorithms can compute a product and how fast they are.
struct ProductKey {
  std::array<int64_t, 18> of{};

  ProductKey(const Product& p, bool tf32);
  auto operator<=>(const ProductKey&) const = default;
  /// "M768 N768 K65536 tn bf16 f32 add lda768 ...": the key in files.
  std::string text() const;
};

/// Which algorithm computes which product on one GPU: the library's, as timing or its own guess chose it, or our own
/// kernels. Streams point to one; they may be driven by several threads.
///
///   GemmChoices choices(device);
///   choices.load(file);                   // and adopt(...) what a checkpoint carries
///   dry_stream.set_gemm_choices(&choices); ... the plan runs ...
///   choices.tune(stream);                 // before the first step
///   stream.set_gemm_choices(&choices);
class GemmChoices {
 public:
  /// Opens the library, if there is one.
  explicit GemmChoices(Device device);
  ~GemmChoices();

  /// "cuBLASLt 130100", or "own kernels (no cuBLASLt: ...)".
  std::string library() const;

  /// A dry stream would compute it: there is something to choose.
  void note(const Product& p, bool tf32);
  /// Times candidates for what was noted and has no choice yet, on random data, on memory of its own, each with cold
  /// caches: our own kernels and what the library proposes. A product for which there is no memory keeps the library's
  /// first guess. Returns how many were timed. Call it before memory is given away, and not while a graph is captured.
  int tune(Stream& s);

  /// The library's algorithm for a product; null: our own kernels. Without a choice it is the library's first guess,
  /// which stays chosen. The pointer is valid while the choices are.
  const gpu::BlasLt::Algorithm* find(const Product& p, bool tf32);
  gpu::BlasLt* blaslt() const { return blaslt_.get(); }

  /// All choices made so far, with device and library: what a checkpoint carries, so that a resumed run repeats its
  /// bits.
  nlohmann::json to_json() const;
  /// Takes over choices of to_json() that were made on the same device and library; they are not timed again. DataError
  /// if it is something else.
  void adopt(const nlohmann::json& json, const std::string& source);

  /// The same in a file, which keeps what it says of other devices. A file that is absent is empty. IoError.
  void load(const std::string& path);
  void save(const std::string& path) const;

 private:
  struct Choice {
    bool own = true;
    gpu::BlasLt::Algorithm algorithm{};
  };
  Choice first_guess(const Product& p, bool tf32);
  Choice fastest(Stream& s, const Product& like, bool tf32);
  std::string machine() const;

  Device device_;
  std::string device_name_, why_no_library_;
  std::unique_ptr<gpu::BlasLt> blaslt_;
  mutable std::mutex mutex_;
  std::map<ProductKey, Choice> choices_;
  std::map<std::string, Choice> adopted_;  // by ProductKey::text()
  struct Noted {
    Product product;
    bool tf32;
  };
  std::map<ProductKey, Noted> noted_;
};

}  // namespace chiron
