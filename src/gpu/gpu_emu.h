#pragma once

/// The emulator's fulfilment of gpu/gpu.h: device code compiled for the host. Devices are made up; their memory is the
/// host's.

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

// The language keywords of GPU compilers.
#define __global__
#define __device__
#define __launch_bounds__(...)

#include "gpu/emulator.h"

namespace chiron::gpu {

inline constexpr int kLanes = CHIRON_EMU_LANES;
inline constexpr int kMaxWarps = kMaxThreads / kLanes;

inline int thread() { return emu::self().thread; }
inline int num_threads() { return emu::self().num_threads; }
inline int lane() { return thread() % kLanes; }
inline int warp() { return thread() / kLanes; }
inline int num_warps() { return num_threads() / kLanes; }
inline int64_t block() { return emu::self().block; }
inline int64_t num_blocks() { return emu::self().num_blocks; }
inline int block_y() { return emu::self().block_y; }
inline int block_z() { return emu::self().block_z; }

inline void sync_block(emu::Site site = emu::Site::current()) { emu::sync_block(site); }
inline void sync_warp(emu::Site site = emu::Site::current()) {
  const char none = 0;
  emu::exchange(&none, 1, site);
}
template <class T>
inline T shuffle(T x, int from, emu::Site site = emu::Site::current()) {
  const std::byte* all = emu::exchange(&x, sizeof x, site);
  if (from < 0 || from >= kLanes) emu::fail("shuffle from lane " + std::to_string(from));
  std::memcpy(&x, all + static_cast<size_t>(from) * emu::kExchange, sizeof x);
  return x;
}
template <class T>
inline T shuffle_xor(T x, int mask, emu::Site site = emu::Site::current()) {
  return gpu::shuffle(x, lane() ^ mask, site);  // not std::shuffle
}
inline uint64_t ballot(bool condition, emu::Site site = emu::Site::current()) {
  const std::byte* all = emu::exchange(&condition, sizeof condition, site);
  uint64_t mask = 0;
  for (int i = 0; i < kLanes; ++i) mask |= uint64_t{all[static_cast<size_t>(i) * emu::kExchange] != std::byte{0}} << i;
  return mask;
}
inline void fence() {}
inline int32_t atomic_add(int32_t* p, int32_t x) {
  int32_t old = *p;
  *p = old + x;
  return old;
}
inline uint32_t atomic_add(uint32_t* p, uint32_t x) {
  uint32_t old = *p;
  *p = old + x;
  return old;
}

template <class T>
class Shared {
 public:
  Shared() = default;
  Shared(T* p, T* begin, T* end) : p_(p), begin_(begin), end_(end) {}
  T& operator[](int i) const {
    T* at = p_ + i;
    if (at < begin_ || at >= end_)
      emu::fail("element " + std::to_string(at - begin_) + " of a shared array of " + std::to_string(end_ - begin_));
    return *at;
  }
  Shared operator+(int n) const { return {p_ + n, begin_, end_}; }
  T* data() const { return p_; }
  template <class U>
  Shared<U> as() const {
    return {reinterpret_cast<U*>(p_), reinterpret_cast<U*>(begin_), reinterpret_cast<U*>(end_)};
  }
  int64_t room() const { return end_ - p_; }  ///< elements from here to the array's end

 private:
  T *p_ = nullptr, *begin_ = nullptr, *end_ = nullptr;
};

class SharedMemory {
 public:
  template <class T>
  Shared<T> take(int n) {
    auto* p = reinterpret_cast<T*>(emu::take_shared(static_cast<size_t>(n) * sizeof(T)));
    return {p, p, p + n};
  }
};

template <class T>
inline void copy_async(Shared<T> to, const T* from, int bytes = 16) {
  if (to.room() * static_cast<int64_t>(sizeof(T)) < 16) emu::fail("copy_async beyond the end of a shared array");
  emu::copy_async(&to[0], from, bytes);
}
inline void copy_async_commit() { emu::copy_async_commit(); }
template <int kPending>
inline void copy_async_wait() {
  emu::copy_async_wait(kPending);
}

inline float exp(float x) { return std::exp(x); }
inline float exp2(float x) { return std::exp2(x); }
inline float fast_exp2(float x) { return std::exp2(x); }
inline float log(float x) { return std::log(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float erf(float x) { return std::erf(x); }
inline float sin(float x) { return std::sin(x); }
inline float cos(float x) { return std::cos(x); }
inline float fma(float x, float y, float z) { return std::fma(x, y, z); }

template <class T>
inline float to_float(T x) {
  return static_cast<float>(x);
}
template <class T>
inline T from_float(float x) {
  return static_cast<T>(x);
}

template <class T>
inline uint32_t pack2(float low, float high) {
  return static_cast<uint32_t>(T(low).bits) | static_cast<uint32_t>(T(high).bits) << 16;
}

inline Bits16 load16(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % 16) emu::fail("load16 from an address that is not aligned");
  Bits16 b;
  std::memcpy(&b, p, sizeof b);
  return b;
}
inline void store16(void* p, const Bits16& b) {
  if (reinterpret_cast<uintptr_t>(p) % 16) emu::fail("store16 to an address that is not aligned");
  std::memcpy(p, &b, sizeof b);
}

namespace vendor {

inline constexpr const char* kName = "the emulator";

/// Work on a stream happens at once, or is written down while a graph is captured.
struct Work {
  bool capturing = false;
  std::vector<std::function<void()>> captured;
};
inline Work* of(StreamHandle s) { return reinterpret_cast<Work*>(s); }
template <class F>
int put(StreamHandle s, F&& work) {
  if (of(s)->capturing)
    of(s)->captured.push_back(std::forward<F>(work));
  else
    work();
  return 0;
}

inline constexpr int kOutOfMemory = 2;
inline std::string error_text(int code) { return code == kOutOfMemory ? "out of memory" : "unknown error"; }
inline bool is_out_of_memory(int code) { return code == kOutOfMemory; }
inline int last_error() { return 0; }

inline int count_devices(int* n) {
  *n = 1;
  return 0;
}
inline int use_device(int) { return 0; }
/// Bytes that the made-up device has.
inline constexpr int64_t kMemory = int64_t{2} << 30;
inline int properties(int, Traits& traits) {
  traits = {.name = "emulated GPU",
            .target = "emulated",
            .lanes = kLanes,
            .multiprocessors = 4,
            .memory = kMemory,
            .shared_memory = 64 << 10,
            .cache = 4 << 20,
            .emulated = true};
  return 0;
}
inline int find_code(const void*) { return 0; }
int free_memory(size_t* bytes);
int allocate(void** memory, size_t bytes);
int release(void* memory);
inline int allocate_host(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory ? 0 : kOutOfMemory;
}
inline int release_host(void* memory) {
  std::free(memory);
  return 0;
}

inline int make_stream(StreamHandle* s) {
  *s = reinterpret_cast<StreamHandle>(new Work);
  return 0;
}
inline int destroy(StreamHandle s) {
  delete of(s);
  return 0;
}
inline int synchronize(StreamHandle) { return 0; }
inline int copy(StreamHandle s, void* to, const void* from, size_t bytes, Direction) {
  return put(s, [=] { std::memmove(to, from, bytes); });
}
inline int copy_rows(StreamHandle s, void* to, const void* from, size_t rows, size_t row_bytes, size_t to_step,
                     size_t from_step) {
  return put(s, [=] {
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<char*>(to) + r * to_step, static_cast<const char*>(from) + r * from_step, row_bytes);
  });
}
inline int fill(StreamHandle s, void* memory, int byte, size_t bytes) {
  return put(s, [=] { std::memset(memory, byte, bytes); });
}

inline int make_event(EventHandle* e) {
  *e = reinterpret_cast<EventHandle>(new char);
  return 0;
}
inline int destroy(EventHandle e) {
  delete reinterpret_cast<char*>(e);
  return 0;
}
inline int record(EventHandle, StreamHandle) { return 0; }
inline int wait(StreamHandle, EventHandle) { return 0; }
inline int synchronize(EventHandle) { return 0; }
inline int elapsed(float* ms, EventHandle, EventHandle) {
  *ms = 0;
  return 0;
}

inline int begin_capture(StreamHandle s) {
  of(s)->capturing = true;
  return 0;
}
inline int end_capture(StreamHandle s, GraphHandle* g) {
  of(s)->capturing = false;
  *g = reinterpret_cast<GraphHandle>(new std::vector<std::function<void()>>(std::move(of(s)->captured)));
  of(s)->captured.clear();
  return 0;
}
inline int launch(GraphHandle g, StreamHandle) {
  for (auto& work : *reinterpret_cast<std::vector<std::function<void()>>*>(g)) work();
  return 0;
}
inline int destroy(GraphHandle g) {
  delete reinterpret_cast<std::vector<std::function<void()>>*>(g);
  return 0;
}

template <class... P>
int launch(StreamHandle s, const Launch& how, void (*kernel)(P...), P... arguments) {
  return put(s, [=] { emu::run(how, kLanes, [&] { kernel(arguments...); }); });
}

}  // namespace vendor
}  // namespace chiron::gpu

#include "gpu/vendor_launch.h"
