#pragma once

namespace chiron {

/// While it lives, SIGINT and SIGTERM are noted instead of ending the process; a second one ends it at once. One at a
/// time. The note is process-wide, as signals are.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace chiron
