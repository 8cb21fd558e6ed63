#include "core/stream.h"

#include <algorithm>
#include <cstring>

namespace chiron {

CpuLevel cpu_level() {
#if defined(__x86_64__) && !defined(CHIRON_BASELINE_ONLY)
  static const CpuLevel level = __builtin_cpu_supports("x86-64-v4")   ? CpuLevel::avx512
                                : __builtin_cpu_supports("x86-64-v3") ? CpuLevel::avx2
                                                                      : CpuLevel::baseline;
  return level;
#else
  return CpuLevel::baseline;
#endif
}

Event::Event(Device device) {
  if constexpr (gpu::kBuilt)
    if (device.kind == DeviceKind::gpu) handle_ = gpu::make_event(device.index);
}

Event::~Event() {
  if constexpr (gpu::kBuilt)
    if (handle_) gpu::destroy(handle_);
}

double Event::seconds_since(const Event& earlier) const {
  CHECK(handle_ && earlier.handle_, "events of the CPU have no time");
  if constexpr (gpu::kBuilt) return static_cast<double>(gpu::milliseconds(earlier.handle_, handle_)) / 1000;
  return 0;
}

Stream::Stream(Device device, ThreadPool& pool) : device_(device), pool_(&pool) {
  CHECK(device.kind == DeviceKind::cpu || gpu::kBuilt, "this build has no GPU");
  if constexpr (gpu::kBuilt)
    if (device.kind == DeviceKind::gpu) {
      handle_.reset(gpu::make_stream(device.index));
      traits_ = gpu::traits(device.index);
    }
}

Stream Stream::dry_like(const Stream& s) {
  Stream dry(s.device_);
  dry.gemm_choices_ = s.gemm_choices_;
  dry.tf32_ = s.tf32_;
  return dry;
}

void Stream::Destroy::operator()(gpu::StreamHandle handle) const {
  if constexpr (gpu::kBuilt) gpu::destroy(handle);
}

template <class F>
void Stream::guarded(F&& f) const {
  try {
    f();
  } catch (const DeviceError& e) {
    throw DeviceError("{}; the op that was started last is {}", e.what(), op_text());
  }
}

void Stream::copy(Tensor to, Rows from) {
  CHECK(to.dtype == from.dtype && to.numel() == from.rows * from.cols, "copy of {} ({}, {}) to {} {}",
        name_of(from.dtype), from.rows, from.cols, name_of(to.dtype), to.shape.str());
  copy(Rows(to.reshape({from.rows, from.cols})), from);
}

void Stream::copy(Rows to, Rows from) {
  CHECK(to.dtype == from.dtype && to.rows == from.rows && to.cols == from.cols, "copy of {} ({}, {}) to {} ({}, {})",
        name_of(from.dtype), from.rows, from.cols, name_of(to.dtype), to.rows, to.cols);
  OpScope op(*this, "copy", {to}, {from}, 0);
  if (!op) return;
  // Rows without gaps are one.
  const bool whole = from.contiguous() && to.contiguous();
  const int64_t size = size_of(to.dtype), rows = whole ? 1 : from.rows,
                bytes = (whole ? from.rows * from.cols : from.cols) * size;
  const int64_t to_step = to.ld * size, from_step = from.ld * size;
  if constexpr (gpu::kBuilt)
    if (on_gpu())
      return guarded([&] {
        auto *out = reinterpret_cast<void*>(to.at), *in = reinterpret_cast<void*>(from.at);
        if (rows == 1)
          gpu::copy(handle(), out, in, bytes, gpu::Direction::within);
        else
          gpu::copy_rows(handle(), out, in, rows, bytes, to_step, from_step);
      });
  constexpr int64_t kGrain = 1 << 20;
  for (int64_t r = 0; r < rows; ++r)
    parallel(bytes, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(reinterpret_cast<char*>(to.at) + r * to_step + begin,
                  reinterpret_cast<const char*>(from.at) + r * from_step + begin, static_cast<size_t>(end - begin));
    });
}

void Stream::fill_zero(Tensor t) {
  OpScope op(*this, "fill_zero", {t}, {}, 0);
  if (op) fill_bytes(t, 0);
}

void Stream::fill_bytes(Tensor t, uint8_t byte) {
  if constexpr (gpu::kBuilt)
    if (on_gpu()) return guarded([&] { gpu::fill(handle(), reinterpret_cast<void*>(t.at), byte, t.bytes()); });
  constexpr int64_t kGrain = 1 << 20;
  parallel(t.bytes(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(reinterpret_cast<char*>(t.at) + begin, byte, static_cast<size_t>(end - begin));
  });
}

void Stream::upload(Tensor to, const void* from) {
  if (dry()) return;
  if constexpr (gpu::kBuilt)
    if (on_gpu())
      return guarded(
          [&] { gpu::copy(handle(), reinterpret_cast<void*>(to.at), from, to.bytes(), gpu::Direction::upload); });
  if (to.bytes() > 0) std::memcpy(reinterpret_cast<void*>(to.at), from, static_cast<size_t>(to.bytes()));
}

void Stream::download(void* to, View from) {
  if (dry()) return;
  if constexpr (gpu::kBuilt)
    if (on_gpu()) {
      guarded([&] {
        gpu::copy(handle(), to, reinterpret_cast<const void*>(from.at), from.bytes(), gpu::Direction::download);
      });
      return sync();
    }
  if (from.bytes() > 0) std::memcpy(to, reinterpret_cast<const void*>(from.at), static_cast<size_t>(from.bytes()));
}

void Stream::record(Event& event) {
  if constexpr (gpu::kBuilt)
    if (on_gpu() && !dry()) gpu::record(event.handle_, handle());
}

void Stream::wait(const Event& event) {
  if constexpr (gpu::kBuilt)
    if (on_gpu() && !dry()) gpu::wait(handle(), event.handle_);
}

void Stream::sync() {
  if constexpr (gpu::kBuilt) {
    if (on_gpu() && !dry()) guarded([&] { gpu::synchronize(handle()); });
  }
}

std::string Stream::op_text() const {
  std::string text = last_op_.name;
  for (size_t i = 0; i < last_op_.num_inputs; ++i) {
    const Operand& operand = last_op_.inputs[i];
    text += fmt::format("{}{}{}", i == 0 ? " of " : " ", name_of(operand.dtype), operand.shape.str());
  }
  return text;
}

void OpScope::remember() {
  Stream::LastOp& last = s_.last_op_;
  last.name = info_.name;
  last.num_inputs = std::min(info_.inputs.size(), last.inputs.size());
  std::copy_n(info_.inputs.begin(), last.num_inputs, last.inputs.begin());
}

}  // namespace chiron
