#pragma once

#include <cstdint>
#include <string>

/// The host's half of the contract that a GPU vendor fulfils: devices, memory, streams, events, graphs. The other half,
/// what kernels are written in, is gpu/gpu.h; both together are the port guide. A build has one vendor at most.
/// Every failure is a DeviceError that says what was being done; after one, a device may be of no further use.
namespace chiron::gpu {

/// Whether this build has a vendor at all. Where it is false nothing below is defined: test it with `if constexpr`.
#ifdef CHIRON_GPU
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

/// What a device is, as its driver tells.
struct Traits {
  std::string name;           ///< "NVIDIA H200"
  std::string target;         ///< what code for it is compiled for: "sm_90", "gfx942"
  int lanes = 0;              ///< threads that run in step and can shuffle: a warp, a wave
  int multiprocessors = 0;    ///< places where blocks run
  int64_t memory = 0;         ///< bytes
  int64_t shared_memory = 0;  ///< bytes that one block may ask for
  int64_t cache = 0;          ///< bytes of the last-level cache
  bool emulated = false;      ///< no hardware: kernels run on the host. Taken only where a GPU is asked for by name
};

/// Devices that this build can use; 0 without a driver. Never throws.
int num_devices();
/// Why num_devices() is 0, in words; empty if it is not.
std::string why_no_device();
/// DeviceError if kernels of this build do not run on it (compiled for other architectures).
Traits traits(int device);
/// Bytes of device memory that are free now.
int64_t free_memory(int device);

/// Device memory, at least 256-byte aligned, contents undefined; null if the device has no `bytes` left.
void* allocate(int device, int64_t bytes);
void release(int device, void* memory);
/// Host memory that the device copies from and to at full speed, without waiting.
void* allocate_host(int64_t bytes);
void release_host(void* memory);

/// Opaque: a vendor's stream, event and executable graph.
using StreamHandle = struct OpaqueStream*;
using EventHandle = struct OpaqueEvent*;
using GraphHandle = struct OpaqueGraph*;

StreamHandle make_stream(int device);
void destroy(StreamHandle stream);
/// Waits for all work, and reports what failed since the last call.
void synchronize(StreamHandle stream);

enum class Direction : uint8_t { within, upload, download };
/// Ordered on the stream. From and to pinned host memory it does not wait.
void copy(StreamHandle stream, void* to, const void* from, int64_t bytes, Direction direction);
/// Rows of `row_bytes`, from_step bytes apart, one behind the other; within the device.
void copy_rows(StreamHandle stream, void* to, const void* from, int64_t rows, int64_t row_bytes, int64_t to_step,
               int64_t from_step);
void fill(StreamHandle stream, void* memory, uint8_t byte, int64_t bytes);

/// A mark in a stream's order of work.
EventHandle make_event(int device);
void destroy(EventHandle event);
void record(EventHandle event, StreamHandle stream);
/// Later work of the stream waits for the event.
void wait(StreamHandle stream, EventHandle event);
/// Milliseconds between two events, which both have happened when this returns.
float milliseconds(EventHandle from, EventHandle to);

/// Work that is put on the stream between the two calls is not run but written down.
void begin_capture(StreamHandle stream);
GraphHandle end_capture(StreamHandle stream);
void launch(GraphHandle graph, StreamHandle stream);
void destroy(GraphHandle graph);

/// For tests: the n-th launch of a kernel or graph from now (counted from 1) fails with `what`, which also loses the
/// device if `lost`: every later call on it fails. 0: never.
void fail_launch(int64_t n, const char* what, bool lost);

}  // namespace chiron::gpu
