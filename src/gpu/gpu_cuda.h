#pragma once

/// NVIDIA's fulfilment of gpu/gpu.h. Compute capability 8.0 and newer.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace chiron::gpu {

inline constexpr int kLanes = 32;
inline constexpr int kMaxWarps = kMaxThreads / kLanes;

__device__ inline int thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int num_threads() { return static_cast<int>(blockDim.x); }
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / kLanes; }
__device__ inline int num_warps() { return static_cast<int>(blockDim.x) / kLanes; }
__device__ inline int64_t block() { return blockIdx.x; }
__device__ inline int64_t num_blocks() { return gridDim.x; }
__device__ inline int block_y() { return static_cast<int>(blockIdx.y); }
__device__ inline int block_z() { return static_cast<int>(blockIdx.z); }

__device__ inline void sync_block() { __syncthreads(); }
__device__ inline void sync_warp() { __syncwarp(); }
template <class T>
__device__ inline T shuffle(T x, int from) {
  return __shfl_sync(0xffffffffu, x, from);
}
template <class T>
__device__ inline T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ inline uint64_t ballot(bool condition) { return __ballot_sync(0xffffffffu, condition); }
__device__ inline void fence() { __threadfence(); }
__device__ inline int32_t atomic_add(int32_t* p, int32_t x) { return atomicAdd(p, x); }
__device__ inline uint32_t atomic_add(uint32_t* p, uint32_t x) { return atomicAdd(p, x); }

template <class T>
class Shared {
 public:
  Shared() = default;
  __device__ explicit Shared(T* p) : p_(p) {}
  __device__ T& operator[](int i) const { return p_[i]; }
  __device__ Shared operator+(int n) const { return Shared(p_ + n); }
  __device__ T* data() const { return p_; }
  template <class U>
  __device__ Shared<U> as() const {
    return Shared<U>(reinterpret_cast<U*>(p_));
  }

 private:
  T* p_ = nullptr;
};

class SharedMemory {
 public:
  template <class T>
  __device__ Shared<T> take(int n) {
    extern __shared__ __align__(16) unsigned char chiron_shared[];
    auto* p = reinterpret_cast<T*>(chiron_shared + taken_);
    taken_ += static_cast<int>(shared_bytes<T>(n));
    return Shared<T>(p);
  }

 private:
  int taken_ = 0;
};

template <class T>
__device__ inline void copy_async(Shared<T> to, const T* from, int bytes = 16) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to.data()));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline float exp(float x) { return ::expf(x); }
__device__ inline float exp2(float x) { return ::exp2f(x); }
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float log(float x) { return ::logf(x); }
__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
__device__ inline float tanh(float x) { return ::tanhf(x); }
__device__ inline float erf(float x) { return ::erff(x); }
__device__ inline float sin(float x) { return ::sinf(x); }
__device__ inline float cos(float x) { return ::cosf(x); }
__device__ inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }

template <class T>
__device__ inline float to_float(T x) {
  if constexpr (std::is_same_v<T, f16>)
    return __half2float(__ushort_as_half(x.bits));
  else
    return static_cast<float>(x);
}
template <class T>
__device__ inline T from_float(float x) {
  T y;
  if constexpr (std::is_same_v<T, bf16>)
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  else if constexpr (std::is_same_v<T, f16>)
    y.bits = __half_as_ushort(__float2half_rn(x));
  else
    y = static_cast<T>(x);
  return y;
}

template <class T>
__device__ inline uint32_t pack2(float low, float high) {
  std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat162, __half2> pair;
  if constexpr (std::is_same_v<T, bf16>)
    pair = __floats2bfloat162_rn(low, high);
  else
    pair = __floats2half2_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

__device__ inline Bits16 load16(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ inline void store16(void* p, const Bits16& b) {
  *static_cast<uint4*>(p) = make_uint4(b.word[0], b.word[1], b.word[2], b.word[3]);
}

namespace vendor {

/// The host's calls, each 0 or an error code of the vendor's: what runtime.cu is written in.
inline constexpr const char* kName = "CUDA";

inline std::string error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
inline bool is_out_of_memory(int code) { return code == cudaErrorMemoryAllocation; }
/// The error that the last launch left, which is then forgotten.
inline int last_error() { return cudaGetLastError(); }

inline int count_devices(int* n) { return cudaGetDeviceCount(n); }
inline int use_device(int device) { return cudaSetDevice(device); }
inline int properties(int device, Traits& traits) {
  cudaDeviceProp p;
  if (int error = cudaGetDeviceProperties(&p, device)) return error;
  traits = {.name = p.name,
            .target = "sm_" + std::to_string(10 * p.major + p.minor),
            .lanes = p.warpSize,
            .multiprocessors = p.multiProcessorCount,
            .memory = static_cast<int64_t>(p.totalGlobalMem),
            .shared_memory = static_cast<int64_t>(p.sharedMemPerBlockOptin),
            .cache = p.l2CacheSize};
  return 0;
}
/// Whether there is code for the device in this program.
inline int find_code(const void* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}
inline int free_memory(size_t* bytes) {
  size_t total;
  return cudaMemGetInfo(bytes, &total);
}
inline int allocate(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
inline int release(void* memory) { return cudaFree(memory); }
inline int allocate_host(void** memory, size_t bytes) { return cudaMallocHost(memory, bytes); }
inline int release_host(void* memory) { return cudaFreeHost(memory); }

inline cudaStream_t of(StreamHandle s) { return reinterpret_cast<cudaStream_t>(s); }
inline cudaEvent_t of(EventHandle e) { return reinterpret_cast<cudaEvent_t>(e); }
inline cudaGraphExec_t of(GraphHandle g) { return reinterpret_cast<cudaGraphExec_t>(g); }

inline int make_stream(StreamHandle* s) {
  return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(s), cudaStreamNonBlocking);
}
inline int destroy(StreamHandle s) { return cudaStreamDestroy(of(s)); }
inline int synchronize(StreamHandle s) { return cudaStreamSynchronize(of(s)); }
inline int copy(StreamHandle s, void* to, const void* from, size_t bytes, Direction direction) {
  const auto kind = direction == Direction::upload     ? cudaMemcpyHostToDevice
                    : direction == Direction::download ? cudaMemcpyDeviceToHost
                                                       : cudaMemcpyDeviceToDevice;
  return cudaMemcpyAsync(to, from, bytes, kind, of(s));
}
inline int copy_rows(StreamHandle s, void* to, const void* from, size_t rows, size_t row_bytes, size_t to_step,
                     size_t from_step) {
  return cudaMemcpy2DAsync(to, to_step, from, from_step, row_bytes, rows, cudaMemcpyDeviceToDevice, of(s));
}
inline int fill(StreamHandle s, void* memory, int byte, size_t bytes) {
  return cudaMemsetAsync(memory, byte, bytes, of(s));
}
inline int make_event(EventHandle* e) { return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(e)); }
inline int destroy(EventHandle e) { return cudaEventDestroy(of(e)); }
inline int record(EventHandle e, StreamHandle s) { return cudaEventRecord(of(e), of(s)); }
inline int wait(StreamHandle s, EventHandle e) { return cudaStreamWaitEvent(of(s), of(e), 0); }
inline int synchronize(EventHandle e) { return cudaEventSynchronize(of(e)); }
inline int elapsed(float* ms, EventHandle from, EventHandle to) { return cudaEventElapsedTime(ms, of(from), of(to)); }

inline int begin_capture(StreamHandle s) { return cudaStreamBeginCapture(of(s), cudaStreamCaptureModeThreadLocal); }
inline int end_capture(StreamHandle s, GraphHandle* g) {
  cudaGraph_t graph;
  if (int error = cudaStreamEndCapture(of(s), &graph)) return error;
  const int error = cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(g), graph, 0);
  cudaGraphDestroy(graph);
  return error;
}
inline int launch(GraphHandle g, StreamHandle s) { return cudaGraphLaunch(of(g), of(s)); }
inline int destroy(GraphHandle g) { return cudaGraphExecDestroy(of(g)); }

template <class... P>
int launch(StreamHandle s, const Launch& how, void (*kernel)(P...), P... arguments) {
  constexpr int64_t kPlainShared = 48 << 10;  // more must be asked for
  if (how.shared > kPlainShared) {
    const auto bytes = static_cast<int>(how.shared);
    const auto* code = reinterpret_cast<const void*>(kernel);
    if (int error = cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
  }
  const dim3 grid(static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.blocks_y),
                  static_cast<unsigned>(how.blocks_z));
  kernel<<<grid, static_cast<unsigned>(how.threads), static_cast<size_t>(how.shared), of(s)>>>(arguments...);
  return last_error();
}

}  // namespace vendor
}  // namespace chiron::gpu

#include "gpu/vendor_launch.h"
