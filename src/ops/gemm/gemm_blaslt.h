#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ops/gemm/gemm_gpu.h"

namespace chiron::gpu {

/// The vendor's library of matrix products, cuBLASLt or hipBLASLt. It is opened when the program runs, so that a
/// program starts where there is none.
class BlasLt {
 public:
  /// An algorithm as the library describes it: bytes that mean something to the same version of it only.
  using Algorithm = std::array<unsigned char, 64>;

  /// For one device. Null if this build has no such library or none was found; `why_not` says so. The environment
  /// variable CHIRON_BLASLT may name the file; else it is looked for where the loader does and in the vendor's folders.
  static std::unique_ptr<BlasLt> open(int device, std::string& why_not);
  virtual ~BlasLt() = default;

  /// "cuBLASLt 130100"
  virtual const std::string& name() const = 0;
  /// Algorithms for a product, at most `most`, the library's best guess first. None where it cannot do the product.
  /// They take at most product_workspace(p) bytes, use no atomics and add up partial sums in f32.
  virtual std::vector<Algorithm> candidates(const Product& p, bool tf32, int most) = 0;
  /// Whether an algorithm that came from a file does the product.
  virtual bool accepts(const Product& p, bool tf32, const Algorithm& algorithm) = 0;
  /// DeviceError if the library refuses.
  virtual void multiply(Stream& s, const Product& p, bool tf32, const Algorithm& algorithm, Tensor workspace) = 0;
};

/// Whether this build knows such a library.
bool has_blaslt();

/// Bytes of workspace that the library gets, by sizes alone: room for 16 partial sums of C where that is not too much.
int64_t product_workspace(const Product& p);

}  // namespace chiron::gpu
