#pragma once

#include <string_view>

namespace chiron {

/// While it lives, SIGINT, SIGTERM and SIGUSR1 (which mpirun passes on, and Slurm sends before the time is up) are
/// noted instead of ending the process, and answered with a line on stderr; a second one ends the process at once. One
/// at a time. The note is process-wide, as signals are.
class StopSignal {
 public:
  /// `answer`: ends with a newline and lives as long as the program.
  explicit StopSignal(std::string_view answer);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace chiron
