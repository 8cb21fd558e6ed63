#include "parallel/schedule.h"

namespace chiron {

std::vector<Action> accumulation_schedule(int micros, bool split) {
  std::vector<Action> actions;
  for (int m = 0; m < micros; ++m) {
    actions.push_back({Action::forward, m});
    actions.push_back({Action::backward, m});
    if (split) actions.push_back({Action::weights, m});
  }
  return actions;
}

}  // namespace chiron
