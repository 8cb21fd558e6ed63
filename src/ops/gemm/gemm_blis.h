#pragma once

#include <cstdint>

#include "core/param.h"

namespace chiron {

/// A read-only operand of a product: element (i, j) lies at p[i * row + j * col].
template <class T>
struct Operand2d {
  const T* p;
  int64_t row, col;
};

/// C (m, n; rows ldc apart) = A (m, k) B (k, n), or C +=, on the calling thread alone. Any number of threads may be in
/// here at once. The bits of an element of C depend on its row of A, its column of B and k, not on m, n or strides.
/// m, n, k >= 1.
void product_on_one_thread(int64_t m, int64_t n, int64_t k, Operand2d<float> a, Operand2d<float> b, float* c,
                           int64_t ldc, Accum accum);
void product_on_one_thread(int64_t m, int64_t n, int64_t k, Operand2d<double> a, Operand2d<double> b, double* c,
                           int64_t ldc, Accum accum);

/// Bytes of BLIS's memory that such a product in f32 fills with packed operands. They stay with the program.
int64_t packing_bytes_on_one_thread(int64_t m, int64_t n, int64_t k);

/// The same product on BLIS's own threads: what the program's speed is compared with. Not used in training.
void product_on_blis_threads(int threads, int64_t m, int64_t n, int64_t k, Operand2d<float> a, Operand2d<float> b,
                             float* c, int64_t ldc, Accum accum);

}  // namespace chiron
