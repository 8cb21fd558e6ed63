#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/stack.h"
#include "core/stream.h"

/// One case of an op: its arguments, the call, and a naive reference. The same list of cases serves the correctness
/// tests (each dtype, each device), the gradient checks, `chiron bench ops` and `chiron doctor --selftest`.
namespace chiron {

/// One array of a case.
struct Arg {
  enum Kind : uint8_t {
    value,  ///< has the dtype under test
    accum,  ///< has acc_dtype of it: statistics, gradients of weights
    ids,    ///< i32
  };
  enum Role : uint8_t {
    input,   ///< must come back untouched
    output,  ///< poisoned before the call
    inout,
    derived,  ///< an input that `prepare` computes (rstd from x)
  };
  std::string name;
  Kind kind;
  Role role;
  Shape shape;
  std::vector<double> contents;  ///< inputs and inouts; rounded to the dtype before use
};

using Arrays = std::vector<std::vector<double>>;

/// How a backward op is checked: L = sum over outputs of upstream * output, and dL/dx by central differences in f64.
struct Gradient {
  /// Calls the forward op on the arguments (f64); writes the output arrays of the forward op into scratch tensors that
  /// the function pushes on `temp`, and returns them.
  std::function<std::vector<Tensor>(Stream&, const std::vector<Tensor>&, Stack& temp)> forward;
  std::vector<int> upstream;               ///< argument index of the upstream gradient of each output
  std::vector<std::pair<int, int>> pairs;  ///< {argument x, argument that received dL/dx}
};

struct OpCase {
  std::string op;    ///< "rmsnorm"
  std::string name;  ///< "T7 C33"
  std::vector<Arg> args;
  /// Calls the op. Tensors come in the order of args.
  std::function<void(Stream&, const std::vector<Tensor>&, Stack& temp)> run;
  /// Fills the derived arguments with the ops that produce them. May be empty.
  std::function<void(Stream&, const std::vector<Tensor>&, Stack& temp)> prepare;
  /// Naive loops in double on the arguments as rounded to the dtype; fills outputs and inouts. Shares no formula with
  /// the kernel. Empty for a backward op whose truth is its own f64 run, itself checked by `gradient`.
  std::function<void(Arrays&)> reference;
  Gradient gradient;      ///< forward empty: none
  bool product = false;   ///< products and attention: wider tolerance in 16-bit kinds
  bool f32_only = false;  ///< no other dtype is part of the contract
  double f32_bytes = 0;   ///< moved at least, where an op leaves most of an operand alone; 0: all of its operands
};

/// What a list of cases is for: `check` has odd sizes that take milliseconds, `bench` the sizes of a training step.
enum class CaseUse : uint8_t { check, bench };

/// The step of a GPT-2 of 10M parameters: 8 sequences of 256 tokens, 6 heads of 64; and some tokens of a step with the
/// vocabulary of a common tokenizer.
namespace bench_size {
inline constexpr int64_t kSequences = 8, kLength = 256, kTokens = kSequences * kLength;
inline constexpr int64_t kHeads = 6, kHeadDim = 64, kWidth = kHeads * kHeadDim, kHidden = 4 * kWidth, kBytes = 256;
inline constexpr int64_t kFewTokens = 128, kVocabulary = 32000;
}  // namespace bench_size

/// A copy of a value where the stream's kernels read it, on `temp`.
template <class T>
T* on_device(Stream& s, const T& value, Stack& temp) {
  const Tensor t = temp.push(DType::u8, {sizeof(T)});
  s.upload(t, &value);
  return reinterpret_cast<T*>(t.at);
}

/// n values from a standard normal distribution times `scale`, plus `shift`: pure in (seed).
std::vector<double> random_normal(int64_t n, uint32_t seed, double scale = 1, double shift = 0);
/// n integers in [0, below), as doubles.
std::vector<double> random_ids(int64_t n, int64_t below, uint32_t seed);

/// Runs a case in one dtype on a stream: outputs against the reference (norm-relative: f32 1e-5, f64 1e-12, 16-bit
/// kinds 4e-3, products 1e-2), inputs untouched, guard zones around every array intact, scratch memory as planned by a
/// dry run, a second run bitwise equal. Returns "" or what is wrong.
std::string check_case(const OpCase& c, DType dtype, Stream& s);
/// Runs a case on two streams; their outputs must have the same bits. Returns "" or what is wrong.
std::string compare_streams(const OpCase& c, DType dtype, Stream& a, Stream& b);
/// Central differences in f64 against the op's gradients. Returns "" or what is wrong.
std::string check_gradient(const OpCase& c, Stream& s);

/// How fast a case runs.
struct Timing {
  double seconds = 0;  ///< median of a call
  double bytes = 0;    ///< of all operands, as the op itself states them: each read or written once
  double flops = 0;    ///< as the op itself states them
};
Timing time_case(const OpCase& c, DType dtype, Stream& s);

}  // namespace chiron
