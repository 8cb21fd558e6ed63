#pragma once

/// AMD's fulfilment of gpu/gpu.h, for HIP 6 and newer.

#include <hip/hip_runtime.h>

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

namespace chiron::gpu {

// The compiler's own constant for the width is on its way out. gfx9, the CDNA chips among it, runs waves of 64; what
// came after runs waves of 32. Device code is compiled once for each chip; the value that the host sees means nothing.
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__GFX9__)
inline constexpr int kLanes = 32;
#else
inline constexpr int kLanes = 64;
#endif
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
/// A wave runs in step; what is left is to keep the compiler from moving memory accesses across.
__device__ inline void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
template <class T>
__device__ inline T shuffle(T x, int from) {
  return __shfl(x, from, kLanes);
}
template <class T>
__device__ inline T shuffle_xor(T x, int mask) {
  return __shfl_xor(x, mask, kLanes);
}
__device__ inline uint64_t ballot(bool condition) { return __ballot(condition); }
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
    extern __shared__ __attribute__((aligned(16))) unsigned char chiron_shared[];
    auto* p = reinterpret_cast<T*>(chiron_shared + taken_);
    taken_ += static_cast<int>(shared_bytes<T>(n));
    return Shared<T>(p);
  }

 private:
  int taken_ = 0;
};

__device__ inline Bits16 load16(const void* p) {
  Bits16 b;
  memcpy(&b, __builtin_assume_aligned(p, 16), sizeof b);
  return b;
}
__device__ inline void store16(void* p, const Bits16& b) { memcpy(__builtin_assume_aligned(p, 16), &b, sizeof b); }

/// There is no copy that bypasses the registers: these are loads that are waited for.
template <class T>
__device__ inline void copy_async(Shared<T> to, const T* from, int bytes = 16) {
  if (bytes >= 16) return store16(to.data(), load16(from));
  for (int i = 0; i < 16 / static_cast<int>(sizeof(T)); ++i)
    to[i] = i * static_cast<int>(sizeof(T)) < bytes ? from[i] : T{};
}
__device__ inline void copy_async_commit() {}
template <int kPending>
__device__ inline void copy_async_wait() {}

__device__ inline float exp(float x) { return ::expf(x); }
__device__ inline float exp2(float x) { return ::exp2f(x); }
__device__ inline float fast_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
__device__ inline float log(float x) { return ::logf(x); }
__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
__device__ inline float tanh(float x) { return ::tanhf(x); }
__device__ inline float erf(float x) { return ::erff(x); }
__device__ inline float sin(float x) { return ::sinf(x); }
__device__ inline float cos(float x) { return ::cosf(x); }
__device__ inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }

// binary16 converts by instructions; bfloat16 has none before gfx950, and its constructor is as short as any.
template <class T>
__device__ inline float to_float(T x) {
  if constexpr (std::is_same_v<T, f16>)
    return static_cast<float>(std::bit_cast<_Float16>(x.bits));
  else
    return static_cast<float>(x);
}
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, f16>) {
    T y;
    y.bits = std::bit_cast<uint16_t>(static_cast<_Float16>(x));
    return y;
  } else {
    return static_cast<T>(x);
  }
}
template <class T>
__device__ inline uint32_t pack2(float low, float high) {
  return uint32_t{from_float<T>(low).bits} | uint32_t{from_float<T>(high).bits} << 16;
}

namespace vendor {

/// The host's calls, each 0 or an error code of the vendor's: what runtime.cu is written in.
inline constexpr const char* kName = "HIP";

inline std::string error_text(int code) { return hipGetErrorString(static_cast<hipError_t>(code)); }
inline bool is_out_of_memory(int code) { return code == hipErrorOutOfMemory; }
/// The error that the last launch left, which is then forgotten.
inline int last_error() { return hipGetLastError(); }

inline int count_devices(int* n) { return hipGetDeviceCount(n); }
inline int use_device(int device) { return hipSetDevice(device); }
inline int properties(int device, Traits& traits) {
  hipDeviceProp_t p;
  if (int error = hipGetDeviceProperties(&p, device)) return error;
  const std::string target = p.gcnArchName;  // "gfx942:sramecc+:xnack-"
  traits = {.name = p.name,
            .target = target.substr(0, target.find(':')),
            .lanes = p.warpSize,
            .multiprocessors = p.multiProcessorCount,
            .memory = static_cast<int64_t>(p.totalGlobalMem),
            .shared_memory = static_cast<int64_t>(p.sharedMemPerBlock),
            .cache = p.l2CacheSize};
  return 0;
}
/// Whether there is code for the device in this program.
inline int find_code(const void* kernel) {
  hipFuncAttributes attributes;
  return hipFuncGetAttributes(&attributes, kernel);
}
inline int free_memory(size_t* bytes) {
  size_t total;
  return hipMemGetInfo(bytes, &total);
}
inline int allocate(void** memory, size_t bytes) { return hipMalloc(memory, bytes); }
inline int release(void* memory) { return hipFree(memory); }
inline int allocate_host(void** memory, size_t bytes) { return hipHostMalloc(memory, bytes, hipHostMallocDefault); }
inline int release_host(void* memory) { return hipHostFree(memory); }

inline hipStream_t of(StreamHandle s) { return reinterpret_cast<hipStream_t>(s); }
inline hipEvent_t of(EventHandle e) { return reinterpret_cast<hipEvent_t>(e); }
inline hipGraphExec_t of(GraphHandle g) { return reinterpret_cast<hipGraphExec_t>(g); }

inline int make_stream(StreamHandle* s) {
  return hipStreamCreateWithFlags(reinterpret_cast<hipStream_t*>(s), hipStreamNonBlocking);
}
inline int destroy(StreamHandle s) { return hipStreamDestroy(of(s)); }
inline int synchronize(StreamHandle s) { return hipStreamSynchronize(of(s)); }
inline int copy(StreamHandle s, void* to, const void* from, size_t bytes, Direction direction) {
  const auto kind = direction == Direction::upload     ? hipMemcpyHostToDevice
                    : direction == Direction::download ? hipMemcpyDeviceToHost
                                                       : hipMemcpyDeviceToDevice;
  return hipMemcpyAsync(to, from, bytes, kind, of(s));
}
inline int copy_rows(StreamHandle s, void* to, const void* from, size_t rows, size_t row_bytes, size_t to_step,
                     size_t from_step) {
  return hipMemcpy2DAsync(to, to_step, from, from_step, row_bytes, rows, hipMemcpyDeviceToDevice, of(s));
}
inline int fill(StreamHandle s, void* memory, int byte, size_t bytes) {
  return hipMemsetAsync(memory, byte, bytes, of(s));
}
inline int make_event(EventHandle* e) { return hipEventCreate(reinterpret_cast<hipEvent_t*>(e)); }
inline int destroy(EventHandle e) { return hipEventDestroy(of(e)); }
inline int record(EventHandle e, StreamHandle s) { return hipEventRecord(of(e), of(s)); }
inline int wait(StreamHandle s, EventHandle e) { return hipStreamWaitEvent(of(s), of(e), 0); }
inline int synchronize(EventHandle e) { return hipEventSynchronize(of(e)); }
inline int elapsed(float* ms, EventHandle from, EventHandle to) { return hipEventElapsedTime(ms, of(from), of(to)); }

inline int begin_capture(StreamHandle s) { return hipStreamBeginCapture(of(s), hipStreamCaptureModeThreadLocal); }
inline int end_capture(StreamHandle s, GraphHandle* g) {
  hipGraph_t graph;
  if (int error = hipStreamEndCapture(of(s), &graph)) return error;
  const int error = hipGraphInstantiate(reinterpret_cast<hipGraphExec_t*>(g), graph, nullptr, nullptr, 0);
  const int after = hipGraphDestroy(graph);
  return error ? error : after;
}
inline int launch(GraphHandle g, StreamHandle s) { return hipGraphLaunch(of(g), of(s)); }
inline int destroy(GraphHandle g) { return hipGraphExecDestroy(of(g)); }

template <class... P>
int launch(StreamHandle s, const Launch& how, void (*kernel)(P...), P... arguments) {
  const dim3 grid(static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.blocks_y),
                  static_cast<unsigned>(how.blocks_z));
  kernel<<<grid, static_cast<unsigned>(how.threads), static_cast<size_t>(how.shared), of(s)>>>(arguments...);
  return last_error();
}

}  // namespace vendor
}  // namespace chiron::gpu

#include "gpu/vendor_launch.h"
