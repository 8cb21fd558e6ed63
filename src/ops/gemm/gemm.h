#pragma once

#include "core/param.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// Whether an operand of a product is read as it lies in memory or as its transpose.
enum class Op : uint8_t { none, transpose };

/// C = op(A) op(B)  or  C += op(A) op(B), row-major, accumulated in acc_dtype. The one matrix product of the program.
/// op(A): (M, K), op(B): (K, N), C: (M, N); each any float kind, f64 only with f64; narrow kinds are widened panel by
/// panel in `temp`. Bits depend neither on the number of threads nor on how C's rows are cut.
void gemm(Stream& s, Rows c, Accum accum, Rows a, Op op_a, Rows b, Op op_b, Stack& temp);

}  // namespace chiron
