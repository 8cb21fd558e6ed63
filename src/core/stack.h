#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace chiron {

/// The DeviceError of a device that is full.
class OutOfMemory : public DeviceError {
  using DeviceError::DeviceError;
};

/// Owning device memory. CPU memory is fresh from the kernel: zero, and resident only once touched. A GPU's contents
/// are undefined.
class Buffer {
 public:
  Buffer() = default;
  /// DeviceError if the device has no `bytes` left.
  Buffer(Device device, int64_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  uintptr_t at() const { return at_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device device_;
  uintptr_t at_ = 0;
  int64_t bytes_ = 0;
};

/// Host memory from which and to which a device copies without waiting: pinned if the device is a GPU.
class HostBuffer {
 public:
  HostBuffer(Device device, int64_t bytes);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  bool pinned_;
  void* data_;
  int64_t bytes_;
};

/// A bump allocator. A dry stack hands out made-up addresses and remembers its peak (beyond 2^58 bytes: ConfigError); a
/// real one is built with exactly that peak, and running over it is a bug.
class Stack {
 public:
  static constexpr int64_t kAlign = 256;

  Stack(Device device, int64_t capacity);
  /// Address ranges of different `number`s do not meet.
  static Stack dry(int number = 0);

  bool is_dry() const { return dry_; }
  Tensor push(DType dtype, Shape shape);
  int64_t top() const { return top_; }
  void release(int64_t top);  ///< back to an earlier top()
  int64_t capacity() const { return capacity_; }
  int64_t peak() const { return peak_; }
  /// Whether an address lies in the part that is in use.
  bool contains(uintptr_t at) const { return at >= base_ && at < base_ + static_cast<uintptr_t>(top_); }
  /// Debugging aid: released memory is filled, on this stream, with 0xff bytes (NaN in every float kind).
  void set_poison(Stream* stream) { poison_ = stream; }

 private:
  Stack() = default;
  Buffer memory_;
  uintptr_t base_ = 0;
  int64_t capacity_ = 0, top_ = 0, peak_ = 0;
  bool dry_ = false;
  Stream* poison_ = nullptr;
};

/// Scratch memory with a scope: everything pushed after the constructor is released by the destructor.
class Scope {
 public:
  explicit Scope(Stack& stack) : stack_(stack), top_(stack.top()) {}
  ~Scope() { stack_.release(top_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Stack& stack_;
  int64_t top_;
};

}  // namespace chiron
