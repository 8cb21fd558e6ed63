#include "gpu/runtime.h"

#include <atomic>
#include <mutex>

#include "gpu/gpu.h"

#define GPU_CHECK(call, doing)                                     \
  do {                                                             \
    if (int error_code = (call)) throw_failure(error_code, doing); \
  } while (false)

namespace chiron::gpu {
namespace {

/// Faults that a test asked for. Of the process, as the device is.
struct Faults {
  std::mutex mutex;
  int64_t launches = 0;  ///< until the one that fails; 0: none does
  std::string what;
  bool lost = false, is_lost = false;
};
Faults& faults() {
  static Faults f;
  return f;
}
std::atomic<bool> armed{false};  // spares a lock in each launch

/// There to see whether the program has code for a device.
__global__ void __launch_bounds__(64) probe_kernel() {}

void check_lost(const char* doing) {
  if (!armed) return;
  std::lock_guard lock(faults().mutex);
  if (faults().is_lost) throw DeviceError("{} failed: {}", doing, faults().what);
}

}  // namespace

void fail_launch(int64_t n, const char* what, bool lost) {
  std::lock_guard lock(faults().mutex);
  faults().launches = n;
  faults().what = what;
  faults().lost = lost;
  faults().is_lost = false;
  armed = n > 0;
}

void count_launch(const char* kernel) {
  if (!armed) return;
  check_lost(kernel);
  std::lock_guard lock(faults().mutex);
  if (faults().launches == 0 || --faults().launches > 0) return;
  faults().is_lost = faults().lost;
  throw DeviceError("{} failed: {}", kernel, faults().what);
}

void throw_failure(int code, const char* doing) {
  throw DeviceError("{} failed: {} says {} ({})", doing, vendor::kName, vendor::error_text(code), code);
}

int num_devices() {
  int n = 0;
  if (vendor::count_devices(&n)) {
    vendor::last_error();
    return 0;
  }
  return n;
}

std::string why_no_device() {
  int n = 0;
  if (int code = vendor::count_devices(&n)) {
    vendor::last_error();
    return vendor::error_text(code);
  }
  return n > 0 ? "" : "there is none";
}

Traits traits(int device) {
  GPU_CHECK(vendor::use_device(device), "choosing a GPU");
  Traits t;
  GPU_CHECK(vendor::properties(device, t), "reading the properties of a GPU");
  if (vendor::find_code(reinterpret_cast<const void*>(probe_kernel))) {
    vendor::last_error();
    throw DeviceError("GPU {} is a {} ({}), for which this build of chiron has no code", device, t.name, t.target);
  }
  return t;
}

int64_t free_memory(int device) {
  size_t bytes = 0;
  GPU_CHECK(vendor::use_device(device), "choosing a GPU");
  GPU_CHECK(vendor::free_memory(&bytes), "asking for free memory");
  return static_cast<int64_t>(bytes);
}

void* allocate(int device, int64_t bytes) {
  check_lost("allocating memory");
  void* memory = nullptr;
  GPU_CHECK(vendor::use_device(device), "choosing a GPU");
  const int code = vendor::allocate(&memory, static_cast<size_t>(bytes));
  if (vendor::is_out_of_memory(code)) {
    vendor::last_error();
    return nullptr;
  }
  GPU_CHECK(code, "allocating memory");
  return memory;
}

// Releasing never throws: it happens while errors are on their way too, and a lost device has nothing to release.
void release(int device, void* memory) {
  vendor::use_device(device);
  if (vendor::release(memory)) vendor::last_error();
}

void* allocate_host(int64_t bytes) {
  void* memory = nullptr;
  GPU_CHECK(vendor::allocate_host(&memory, static_cast<size_t>(bytes)), "allocating host memory");
  return memory;
}
void release_host(void* memory) {
  if (vendor::release_host(memory)) vendor::last_error();
}

StreamHandle make_stream(int device) {
  StreamHandle s = nullptr;
  GPU_CHECK(vendor::use_device(device), "choosing a GPU");
  GPU_CHECK(vendor::make_stream(&s), "making a stream");
  return s;
}
void destroy(StreamHandle stream) {
  if (vendor::destroy(stream)) vendor::last_error();
}
void synchronize(StreamHandle stream) {
  check_lost("waiting for the GPU");
  GPU_CHECK(vendor::synchronize(stream), "waiting for the GPU");
}

void copy(StreamHandle stream, void* to, const void* from, int64_t bytes, Direction direction) {
  check_lost("copying memory");
  if (bytes == 0) return;
  GPU_CHECK(vendor::copy(stream, to, from, static_cast<size_t>(bytes), direction), "copying memory");
}
void copy_rows(StreamHandle stream, void* to, const void* from, int64_t rows, int64_t row_bytes, int64_t to_step,
               int64_t from_step) {
  check_lost("copying memory");
  if (rows == 0 || row_bytes == 0) return;
  GPU_CHECK(vendor::copy_rows(stream, to, from, static_cast<size_t>(rows), static_cast<size_t>(row_bytes),
                              static_cast<size_t>(to_step), static_cast<size_t>(from_step)),
            "copying memory");
}
void fill(StreamHandle stream, void* memory, uint8_t byte, int64_t bytes) {
  check_lost("filling memory");
  if (bytes == 0) return;
  GPU_CHECK(vendor::fill(stream, memory, byte, static_cast<size_t>(bytes)), "filling memory");
}

EventHandle make_event(int device) {
  EventHandle e = nullptr;
  GPU_CHECK(vendor::use_device(device), "choosing a GPU");
  GPU_CHECK(vendor::make_event(&e), "making an event");
  return e;
}
void destroy(EventHandle event) {
  if (vendor::destroy(event)) vendor::last_error();
}
void record(EventHandle event, StreamHandle stream) { GPU_CHECK(vendor::record(event, stream), "recording an event"); }
void wait(StreamHandle stream, EventHandle event) { GPU_CHECK(vendor::wait(stream, event), "waiting for an event"); }
float milliseconds(EventHandle from, EventHandle to) {
  float ms = 0;
  GPU_CHECK(vendor::synchronize(to), "waiting for an event");
  GPU_CHECK(vendor::elapsed(&ms, from, to), "timing between events");
  return ms;
}

void begin_capture(StreamHandle stream) { GPU_CHECK(vendor::begin_capture(stream), "capturing a graph"); }
GraphHandle end_capture(StreamHandle stream) {
  GraphHandle g = nullptr;
  GPU_CHECK(vendor::end_capture(stream, &g), "making a graph of captured work");
  return g;
}
void launch(GraphHandle graph, StreamHandle stream) {
  count_launch("launching a graph");
  GPU_CHECK(vendor::launch(graph, stream), "launching a graph");
}
void destroy(GraphHandle graph) {
  if (vendor::destroy(graph)) vendor::last_error();
}

}  // namespace chiron::gpu
