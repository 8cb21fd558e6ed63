#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string_view>

#include "train/step_stats.h"

namespace chiron {

/// Shows how a run goes: on a terminal one line, drawn again and again at the terminal's width; elsewhere plain lines
/// without control characters, one per `every` steps. Used by one thread.
class Progress {
 public:
  /// `columns` tells the terminal's width each time a line is drawn; 0 means that `out` is no terminal.
  /// every >= 1: steps between plain lines. The first and the last step and those with an evaluation always show.
  Progress(std::ostream& out, std::function<int()> columns, int64_t every);

  void step(const StepStats& stats);

  /// A line of its own that stays: a save, a warning. The progress line moves below it.
  void note(std::string_view line);

  /// Ends the progress line, so that what follows starts on a new one. Further steps may come.
  void finish();

 private:
  std::ostream& out_;
  std::function<int()> columns_;
  int64_t every_;
  bool first_ = true;
  bool drawn_ = false;                                      // the cursor stands behind a progress line
  double since_drawn_ = 0;                                  // seconds of steps not shown yet
  double steps_ = 0, tokens_ = 0, seconds_ = 0, wait_ = 0;  // sums that forget old steps
  double count_ = 0, other_ = 0;                            // that do not: evaluations and saves come seldom
};

/// Columns of the terminal behind a file descriptor; 0 if it is none, or one that cannot move its cursor (TERM=dumb).
int terminal_columns(int fd);

}  // namespace chiron
