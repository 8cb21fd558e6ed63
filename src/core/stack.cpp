#include "core/stack.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace chiron {

Buffer::Buffer(Device device, int64_t bytes) : device_(device), bytes_(bytes) {
  CHECK(device.kind == DeviceKind::cpu || gpu::kBuilt, "this build has no memory for that device");
  if (bytes == 0) return;
  if constexpr (gpu::kBuilt)
    if (device.kind == DeviceKind::gpu) {
      at_ = reinterpret_cast<uintptr_t>(gpu::allocate(device.index, bytes));
      if (!at_)
        throw OutOfMemory("out of memory: {} bytes are not to be had on GPU {}, which has {} free", bytes, device.index,
                          gpu::free_memory(device.index));
      return;
    }
  void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw OutOfMemory("out of memory: {} bytes are not to be had on the CPU", bytes);
  // Huge pages spare page faults and TLB misses in large arrays; small ones keep 4 KiB pages and their exact size.
  constexpr int64_t kHuge = 8 << 20;
  if (bytes >= kHuge) madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  at_ = reinterpret_cast<uintptr_t>(p);
}

Buffer::~Buffer() {
  if (!at_) return;
  if constexpr (gpu::kBuilt)
    if (device_.kind == DeviceKind::gpu) {
      gpu::release(device_.index, reinterpret_cast<void*>(at_));
      return;
    }
  munmap(reinterpret_cast<void*>(at_), static_cast<size_t>(bytes_));
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_), at_(std::exchange(other.at_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostBuffer::HostBuffer(Device device, int64_t bytes)
    : pinned_(gpu::kBuilt && device.kind == DeviceKind::gpu), bytes_(bytes) {
  if constexpr (gpu::kBuilt)
    if (pinned_) {
      data_ = gpu::allocate_host(bytes);
      return;
    }
  data_ = ::operator new(static_cast<size_t>(bytes));
}

HostBuffer::~HostBuffer() {
  if constexpr (gpu::kBuilt)
    if (pinned_) {
      gpu::release_host(data_);
      return;
    }
  ::operator delete(data_);
}

Stack::Stack(Device device, int64_t capacity) : memory_(device, capacity), base_(memory_.at()), capacity_(capacity) {}

Stack Stack::dry(int number) {
  constexpr int kRangeBits = 58;
  CHECK(0 <= number && number < (1 << (64 - kRangeBits)) - 1, "dry stack {}", number);
  Stack s;
  s.dry_ = true;
  // Non-zero, so that a planned tensor is "present".
  s.base_ = (uintptr_t{1} << kRangeBits) * static_cast<uintptr_t>(number + 1);
  s.capacity_ = int64_t{1} << kRangeBits;
  return s;
}

Tensor Stack::push(DType dtype, Shape shape) {
  if (dry_) {
    auto wanted = static_cast<double>(size_of(dtype));  // an int64_t might overflow
    for (int i = 0; i < shape.rank; ++i) wanted *= static_cast<double>(shape[i]);
    if (wanted + static_cast<double>(top_ + kAlign) > static_cast<double>(capacity_))
      throw ConfigError(
          "{} {} on top of {} bytes: that is more than memory can be planned for; lower the sizes of the "
          "model, training.batch_size or training.seq_len",
          name_of(dtype), shape.str(), top_);
  }
  int64_t bytes = (shape.numel() * size_of(dtype) + kAlign - 1) / kAlign * kAlign;
  CHECK(bytes >= 0 && bytes <= capacity_ - top_, "a stack of {} bytes holds {} and cannot take {} {}", capacity_, top_,
        name_of(dtype), shape.str());
  Tensor t{base_ + static_cast<uintptr_t>(top_), dtype, shape};
  top_ += bytes;
  peak_ = std::max(peak_, top_);
  return t;
}

void Stack::release(int64_t top) {
  CHECK(0 <= top && top <= top_, "release to {} above the top {}", top, top_);
  if (poison_ && !dry_ && top < top_)
    poison_->fill_bytes({base_ + static_cast<uintptr_t>(top), DType::u8, {top_ - top}}, 0xff);
  top_ = top;
}

}  // namespace chiron
