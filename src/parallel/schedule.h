#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chiron {

/// In which order a pipeline's stages work on the micro-batches of a step.
enum class PipelineOrder : uint8_t {
  gpipe,        ///< all forward, then all backward (Huang et al., "GPipe", 2019)
  one_f_one_b,  ///< backward as soon as possible (Narayanan et al., "PipeDream", 2019)
  interleaved,  ///< 1F1B over several chunks of layers per stage (Narayanan et al., "Megatron-LM", 2021, section 2.2)
  zero_bubble,  ///< 1F1B with weight gradients where a stage would wait (Qi et al., "Zero Bubble", 2023, ZB-H1)
};

constexpr std::array<std::string_view, 4> names_of(PipelineOrder) {
  return {"gpipe", "1f1b", "interleaved", "zero_bubble"};
}

/// One thing that a stage does for one micro-batch.
struct Action {
  enum Kind : uint8_t { forward, backward, weights } kind;
  int micro;
  int chunk = 0;
  bool operator==(const Action&) const = default;
};

struct ScheduleShape {
  PipelineOrder order = PipelineOrder::one_f_one_b;
  int stages = 1;
  int chunks = 1;  ///< of the model, per stage; chunk c of stage s is its (c * stages + s)th part. One stage has one
  int micros = 1;
  /// Weight gradients are actions of their own. Always so with zero_bubble on several stages.
  bool split = false;

  bool splits() const { return split || (order == PipelineOrder::zero_bubble && stages > 1); }
};

/// ConfigError if there is no such schedule: chunks without `interleaved`, or micro-batches that it cannot group.
void validate(const ScheduleShape& shape);

/// What `stage` does in a step, in order. A pure function. Every order goes through the micro-batches of a chunk in
/// ascending order in each kind of action, so gradients are summed in one order and the bits do not depend on it. A
/// pipeline of one stage is gradient accumulation: each micro-batch goes forward, then back.
std::vector<Action> schedule(const ScheduleShape& shape, int stage);

/// Gradients of a stage that are worked on, or on their way to the stage before, at one time: enough for every order.
inline constexpr int kGradientBuffers = 2;

/// Which saved stack each action uses: a forward action takes a free one, the last action of its micro-batch and chunk
/// gives it back. As many stacks are needed as the largest number says, plus one.
std::vector<int> assign_stacks(const std::vector<Action>& actions, bool split);

}  // namespace chiron
