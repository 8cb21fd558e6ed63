#pragma once

#include <memory>
#include <vector>

#include "gpu/gpu.h"

/// For tests of what kernels are written in, below tensors and ops.
namespace chiron::gpu {

/// An array of device 0, from and to a vector, and a stream of its own. Kernels are run one at a time.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::vector<T> host) : host_(std::move(host)) {
    memory_ = allocate(0, bytes() + 1);
    CHECK(memory_ != nullptr);
    stream_ = make_stream(0);
    copy(stream_, memory_, host_.data(), bytes(), Direction::upload);
    synchronize(stream_);
  }
  ~DeviceArray() {
    destroy(stream_);
    release(0, memory_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(memory_); }
  /// Copies what is there.
  const std::vector<T>& read() {
    copy(stream_, host_.data(), memory_, bytes(), Direction::download);
    synchronize(stream_);
    return host_;
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(host_.size() * sizeof(T)); }
  std::vector<T> host_;
  void* memory_ = nullptr;
  StreamHandle stream_ = nullptr;
};

/// Runs a kernel to its end.
template <class... P, class... A>
void run_kernel(const Launch& how, void (*kernel)(P...), A... arguments) {
  struct Destroy {
    void operator()(StreamHandle s) const { destroy(s); }
  };
  std::unique_ptr<std::remove_pointer_t<StreamHandle>, Destroy> stream(make_stream(0));
  launch(stream.get(), how, kernel, arguments...);
  synchronize(stream.get());
}

}  // namespace chiron::gpu
