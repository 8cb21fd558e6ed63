#include "core/graph.h"

namespace chiron {

void Graph::capture(Stream& s, const std::function<void()>& work) {
  CHECK(s.on_gpu() && !s.dry(), "graphs are of a running GPU stream");
  if constexpr (gpu::kBuilt) {
    gpu::begin_capture(s.handle());
    try {
      work();
    } catch (...) {
      // The stream must leave the capture; what broke it is what gets reported.
      try {
        gpu::destroy(gpu::end_capture(s.handle()));
      } catch (const DeviceError&) {
      }
      throw;
    }
    handle_.reset(gpu::end_capture(s.handle()));
  }
}

void Graph::launch(Stream& s, const char* what) const {
  CHECK(handle_, "a graph without work");
  s.note(what);
  if constexpr (gpu::kBuilt) {
    try {
      gpu::launch(handle_.get(), s.handle());
    } catch (const DeviceError& e) {
      throw DeviceError("{}: {}", what, e.what());
    }
  }
}

void Graph::Destroy::operator()(gpu::GraphHandle handle) const {
  if constexpr (gpu::kBuilt) gpu::destroy(handle);
}

}  // namespace chiron
