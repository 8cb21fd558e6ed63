#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "base/thread_pool.h"
#include "core/tensor.h"
#include "gpu/runtime.h"

namespace chiron {

enum class DeviceKind : uint8_t { cpu, gpu };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// The instruction sets for which CPU loops are compiled.
enum class CpuLevel : uint8_t { baseline, avx2, avx512 };
/// The best one that this machine has, found once.
CpuLevel cpu_level();

/// dtype and sizes of one operand of an op, for traces and messages.
struct Operand {
  DType dtype = DType::f32;
  Shape shape;
  Operand() = default;
  Operand(const View& v) : dtype(v.dtype), shape(v.shape) {}
  Operand(const Tensor& t) : dtype(t.dtype), shape(t.shape) {}
  Operand(const Rows& r) : dtype(r.dtype), shape{r.rows, r.cols} {}
  int64_t bytes() const { return shape.numel() * size_of(dtype); }
};

/// What an op says of itself when it starts. `flops` counts a multiply and an add as two.
struct OpInfo {
  const char* name;
  std::span<const Operand> outputs, inputs;
  double flops;
};

/// Watches the ops of a stream: the plan's table, the profiler's clock. Called on the stream's own thread.
class Trace {
 public:
  virtual ~Trace() = default;
  virtual void begin(const OpInfo&) = 0;
  virtual void end(const OpInfo&) = 0;
  /// Ops that follow belong to this unit of the model (-1: to none), in its forward or backward call.
  virtual void unit(int /*unit*/, bool /*forward*/) {}
  /// The equation of a slot starts and ends: its ops lie between. `again`: backward computes a forgotten slot.
  virtual void slot_begin(const char* /*name*/, bool /*kept*/, bool /*again*/) {}
  virtual void slot_end() {}
};

/// A mark in a stream's order of work. On the CPU work is done when the call returns, so an event carries nothing.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// Seconds of the device's time since an earlier event of the same device; GPU only. Waits for both.
  double seconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  gpu::EventHandle handle_ = nullptr;
};

class OpScope;
class GemmChoices;  // ops/gemm

/// An ordered queue of work on one device. A dry stream belongs to a device too, but runs nothing: ops check their
/// shapes, take their scratch memory, tell the trace, and return. Not thread-safe: one thread drives a stream.
class Stream {
 public:
  /// The pool outlives the stream; the host's share of the work runs on it.
  Stream(Device device, ThreadPool& pool);
  static Stream dry(Device device) { return Stream(device); }
  /// One that plans for `s`: of the same device, and computing products in the same way.
  static Stream dry_like(const Stream& s);

  Device device() const { return device_; }
  bool dry() const { return pool_ == nullptr; }
  /// Whether ops go to their GPU kernels. A constant where the build has no GPU, so that calls of them vanish.
  bool on_gpu() const { return gpu::kBuilt && device_.kind == DeviceKind::gpu; }
  gpu::StreamHandle handle() const { return handle_.get(); }
  /// What the GPU of a stream that runs is.
  const gpu::Traits& traits() const { return traits_; }
  Trace* trace() const { return trace_; }
  void set_trace(Trace* trace) { trace_ = trace; }
  /// How products are computed on a GPU; null: by our own kernels, untimed. The choices outlive the stream.
  GemmChoices* gemm_choices() const { return gemm_choices_; }
  void set_gemm_choices(GemmChoices* choices) { gemm_choices_ = choices; }
  /// Whether products of f32 may round their operands to tf32 (10 bits of mantissa) where the GPU is faster then.
  bool tf32() const { return tf32_; }
  void set_tf32(bool allowed) { tf32_ = allowed; }
  /// Threads that parallel() may use. What a kernel computes must not depend on it.
  int num_threads() const { return pool_ ? pool_->size() : 1; }

  /// A stream of the CPU on the same threads: for the host's share of the work.
  Stream host() const { return {{}, *pool_}; }

  void copy(Rows to, Rows from);    ///< same dtype and shape; they do not overlap
  void copy(Tensor to, Rows from);  ///< same dtype and number of elements
  void fill_zero(Tensor t);
  void fill_bytes(Tensor t, uint8_t byte);
  /// Between host memory and the device's: to.bytes() or from.bytes() of them. upload() has read `from` when it
  /// returns, unless that is pinned (HostBuffer): then when the stream comes to it. download() waits.
  void upload(Tensor to, const void* from);
  void download(void* to, View from);
  void record(Event& event);
  /// Later work of this stream waits for the event.
  void wait(const Event& event);
  /// Waits for all work. DeviceError if some of it failed; names the op that was started last.
  void sync();
  /// "rmsnorm of bf16(8, 64) bf16(64)": the op that runs or ran last, for messages.
  std::string op_text() const;
  /// What is started now in place of an op; `what` outlives the stream.
  void note(const char* what) { last_op_ = {.name = what}; }

  /// CPU only: cuts [0, n) into ranges of about `grain` items and runs f(begin, end) on them, on all threads. Ranges
  /// depend on n and grain alone, never on the number of threads. f is compiled for three instruction sets; keep calls
  /// out of its loops that the compiler cannot inline.
  template <class F>
  void parallel(int64_t n, int64_t grain, F&& f);

  /// The same, but f is compiled for one instruction set only, which the machine must have: for loops that are written
  /// for its registers (see cpu_level).
  template <CpuLevel kLevel, class F>
  void parallel_at(int64_t n, int64_t grain, F&& f);

 private:
  friend class OpScope;
  /// The op that was started last: its name and inputs.
  struct LastOp {
    const char* name = "";
    std::array<Operand, 8> inputs;
    size_t num_inputs = 0;
  };
  struct Destroy {
    void operator()(gpu::StreamHandle handle) const;
  };

  explicit Stream(Device device) : device_(device) {}
  /// Runs f(), which talks to the GPU; what it fails with may come from work before it, so the op is named.
  template <class F>
  void guarded(F&& f) const;
  Device device_;
  ThreadPool* pool_ = nullptr;
  Trace* trace_ = nullptr;
  GemmChoices* gemm_choices_ = nullptr;
  bool tf32_ = false;
  std::unique_ptr<std::remove_pointer_t<gpu::StreamHandle>, Destroy> handle_;
  gpu::Traits traits_;
  LastOp last_op_;
};

/// One op on a stream, from its shape checks to its end. Converts to false on a dry stream: the op then returns.
///   OpScope op(s, "rmsnorm", {y, rstd}, {x, w}, 4.0 * x.numel());
///   if (!op) return;
class OpScope {
 public:
  OpScope(Stream& s, const char* name, std::initializer_list<Operand> outputs, std::initializer_list<Operand> inputs,
          double flops)
      : s_(s), info_{name, {outputs.begin(), outputs.size()}, {inputs.begin(), inputs.size()}, flops} {
    if (s.trace()) s.trace()->begin(info_);
    if (s.on_gpu()) remember();
    // The operand lists live only until the constructor's full expression ends; end() is told name and FLOPs.
    info_.outputs = info_.inputs = {};
  }
  ~OpScope() {
    if (s_.trace()) s_.trace()->end(info_);
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  explicit operator bool() const { return !s_.dry(); }

 private:
  void remember();
  Stream& s_;
  OpInfo info_;
};

namespace detail {

template <class F>
struct Ranges {
  F* f;
  int64_t n, grain;
  void operator()(int64_t part) const {
    int64_t begin = part * grain, end = begin + grain < n ? begin + grain : n;
    (*f)(begin, end);
  }
};

// `flatten` inlines the whole loop into each of these, and `target` then compiles it for that instruction set.
template <class F>
[[gnu::flatten]] void run_baseline(void* context, int64_t part) {
  (*static_cast<const Ranges<F>*>(context))(part);
}
#if defined(__x86_64__) && !defined(CHIRON_BASELINE_ONLY)
template <class F>
[[gnu::flatten, gnu::target("arch=x86-64-v3")]] void run_avx2(void* context, int64_t part) {
  (*static_cast<const Ranges<F>*>(context))(part);
}
template <class F>
[[gnu::flatten, gnu::target("arch=x86-64-v4")]] void run_avx512(void* context, int64_t part) {
  (*static_cast<const Ranges<F>*>(context))(part);
}
#endif

}  // namespace detail

template <class F>
void Stream::parallel(int64_t n, int64_t grain, F&& f) {
#if defined(__x86_64__) && !defined(CHIRON_BASELINE_ONLY)
  if (cpu_level() == CpuLevel::avx512) return parallel_at<CpuLevel::avx512>(n, grain, f);
  if (cpu_level() == CpuLevel::avx2) return parallel_at<CpuLevel::avx2>(n, grain, f);
#endif
  parallel_at<CpuLevel::baseline>(n, grain, f);
}

template <CpuLevel kLevel, class F>
void Stream::parallel_at(int64_t n, int64_t grain, F&& f) {
  CHECK(!dry() && device_.kind == DeviceKind::cpu, "parallel() needs a running CPU stream");
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  using Body = std::remove_reference_t<F>;
  detail::Ranges<Body> ranges{&f, n, grain};
  ThreadPool::Job job;
#if defined(__x86_64__) && !defined(CHIRON_BASELINE_ONLY)
  if constexpr (kLevel == CpuLevel::avx512)
    job = detail::run_avx512<Body>;
  else if constexpr (kLevel == CpuLevel::avx2)
    job = detail::run_avx2<Body>;
  else
#endif
    job = detail::run_baseline<Body>;
  pool_->run((n + grain - 1) / grain, job, &ranges);
}

}  // namespace chiron
