#include "ops/gemm/gemm_kernel.cuh"

namespace chiron::gpu {

template void tiled_product_of<f16>(Stream&, const Product&, const Tiling&, Tensor);

}  // namespace chiron::gpu
