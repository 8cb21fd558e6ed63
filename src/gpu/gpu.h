#pragma once

/// What a kernel is written in: the device's half of the contract that a GPU vendor fulfils (the host's half is
/// gpu/runtime.h). Included by .cu files only, which are compiled by the vendor's compiler, or by the host's for the
/// emulator. To port Chiron to another vendor, write a header beside gpu_cuda.h that provides everything below; then
/// `chiron doctor --selftest` tells whether it is right.
///
/// Language keywords: __global__ (a kernel), __device__ (runs on the device), __launch_bounds__(threads). Kernels are
/// functions without a result whose arguments are trivially copyable.
///
/// Constants
///   kLanes                    lanes of a warp: threads that run in step; 32 or 64. Known to device code only: what the
///                             host computes must not depend on it
///   kMaxWarps                 warps that a block may have
///
/// Where a thread stands. Blocks have one dimension, a multiple of 64 threads; grids have up to three
///   int thread()  int num_threads()  int lane()  int warp()  int num_warps()
///   int64_t block()  int64_t num_blocks()  int block_y()  int block_z()
///
/// Order and exchange. Every thread of the block (of the warp) must come to the same call
///   sync_block()              a barrier; shared and global memory written before it are seen after it, by the block
///   sync_warp()               the same for a warp
///   shuffle(x, from)          x of another lane; shuffle_xor(x, mask) of lane ^ mask. T of 4 or 8 bytes
///   ballot(condition)         uint64_t, bit l: lane l's condition
///   fence()                   what this thread wrote to global memory is seen by other blocks before what it writes
///   next atomic_add(p, x)          int32_t and uint32_t in global memory; returns the old value. Integers only: sums
///   of
///                             floats in an order that nobody chose would change bits from run to run
///
/// Shared memory
///   SharedMemory memory;  Shared<T> a = memory.take<T>(n);
///                             cuts the block's shared memory into arrays, 16-byte aligned, in the same order in every
///                             thread. Shared<T> is a pointer with operator[], + and data(); as<U>() is the same
///                             memory as elements of U. The host says how many bytes there are: shared_bytes<T>(n) of
///                             each array, added up
///   copy_async(Shared<T> to, const T* from)
///                             16 bytes from global to shared memory, both aligned, not waiting; copy_async_commit()
///                             closes a group, copy_async_wait<n>() waits until at most n groups are under way. Other
///                             threads see the data after a sync_block() that follows
///   copy_async(to, from, bytes)  the same, but only the first `bytes` (0 to 16) are read, the rest of the 16 is zero
///
/// Arithmetic on float, correctly rounded or within 2 ulp: exp exp2 log sqrt rsqrt tanh erf sin cos fma; fast_exp2
/// within 2 ulp of a normal result, subnormals may be 0. bf16 and f16 convert by their constructors (base/half.h), or
/// by
///   to_float(T)  from_float<T>(float)   the same bits, by an instruction where there is one; float passes
///   pack2<T>(low, high)                 two of them in a uint32_t, T a 16-bit kind
///
/// Memory
///   Bits16 load16(p)  store16(p, bits)  one access of 16 bytes to global or shared memory, aligned
///
/// Launching, from the host
///   launch(stream, Launch{...}, kernel, arguments...)     throws DeviceError
///
/// Built from these for all vendors: gpu/vec.h (16-byte access), gpu/reduce.h (sums and maxima of warps and blocks),
/// gpu/fragment.h (products of matrix tiles).

#include "base/half.h"
#include "gpu/runtime.h"

namespace chiron::gpu {

/// How a kernel is started.
struct Launch {
  const char* kernel;              ///< its name, for messages
  int64_t blocks = 1;              ///< at most 2^31 - 1
  int threads = 256;               ///< of a block: a multiple of 64, at most 1024
  int64_t shared = 0;              ///< bytes of shared memory of a block
  int blocks_y = 1, blocks_z = 1;  ///< at most 65535
};

inline constexpr int kMaxThreads = 1024;

/// What load16 and store16 move.
struct Bits16 {
  uint32_t word[4];
};

/// Bytes that an array of n T takes in shared memory.
template <class T>
constexpr int64_t shared_bytes(int64_t n) {
  return (n * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
}

}  // namespace chiron::gpu

#if defined(__CUDACC__)
#include "gpu/gpu_cuda.h"
#elif defined(__HIP__)
#include "gpu/gpu_hip.h"
#else
#include "gpu/gpu_emu.h"
#endif
