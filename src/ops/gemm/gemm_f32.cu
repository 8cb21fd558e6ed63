#include "ops/gemm/gemm_kernel.cuh"

namespace chiron::gpu {

template void tiled_product_of<float>(Stream&, const Product&, const Tiling&, Tensor);

}  // namespace chiron::gpu
