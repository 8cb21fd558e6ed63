#include "ops/gemm/gemm_blis.h"

#include <blis.h>

#include <algorithm>
#include <utility>

namespace chiron {
namespace {

static_assert(sizeof(dim_t) == 8 && sizeof(inc_t) == 8, "arrays beyond 2^31 elements need 64-bit sizes in BLIS");

// The path for small matrices ("sup") chooses its kernel by the sizes of the call; without it every cut of C gives the
// same bits.
rntm_t settings_for(int threads) {
  rntm_t settings = BLIS_RNTM_INITIALIZER;
  bli_rntm_set_num_threads(threads, &settings);
  bli_rntm_set_l3_sup(FALSE, &settings);
  return settings;
}

template <class T, class Gemm>
void call(Gemm gemm, int64_t m, int64_t n, int64_t k, Operand2d<T> a, Operand2d<T> b, T* c, int64_t ldc, Accum accum,
          int threads = 1) {
  rntm_t settings = settings_for(threads);
  T alpha = 1, beta = accum == Accum::add ? 1 : 0;
  gemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, const_cast<T*>(a.p), a.row, a.col, const_cast<T*>(b.p),
       b.row, b.col, &beta, c, ldc, 1, nullptr, &settings);
}

}  // namespace

void product_on_one_thread(int64_t m, int64_t n, int64_t k, Operand2d<float> a, Operand2d<float> b, float* c,
                           int64_t ldc, Accum accum) {
  call(bli_sgemm_ex, m, n, k, a, b, c, ldc, accum);
}

void product_on_one_thread(int64_t m, int64_t n, int64_t k, Operand2d<double> a, Operand2d<double> b, double* c,
                           int64_t ldc, Accum accum) {
  call(bli_dgemm_ex, m, n, k, a, b, c, ldc, accum);
}

int64_t packing_bytes_on_one_thread(int64_t m, int64_t n, int64_t k) {
  bli_init();
  cntx_t* context = bli_gks_query_cntx();
  auto block = [&](bszid_t size) { return bli_cntx_get_blksz_max_dt(BLIS_FLOAT, size, context); };
  // C lies in rows: a kernel that stores columns computes its transpose.
  if (!bli_cntx_l3_vir_ukr_prefers_rows_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context)) std::swap(m, n);
  auto edge = [](int64_t size, int64_t most, int64_t unit) { return (std::min(size, most) + unit - 1) / unit * unit; };
  const int64_t packed_rows = edge(m, block(BLIS_MC), block(BLIS_MR)) + edge(n, block(BLIS_NC), block(BLIS_NR));
  return std::min(k, block(BLIS_KC)) * packed_rows * size_of(DType::f32);
}

void product_on_blis_threads(int threads, int64_t m, int64_t n, int64_t k, Operand2d<float> a, Operand2d<float> b,
                             float* c, int64_t ldc, Accum accum) {
  call(bli_sgemm_ex, m, n, k, a, b, c, ldc, accum, threads);
}

}  // namespace chiron
