#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/box_copy.h"
#include "io/checkpoint.h"

namespace chiron {

/// A small training state for tests: a matrix stored transposed and strided, a vector, a scalar, and a moment.
struct TrainingState {
  int64_t step = 0;
  std::vector<float> attn = std::vector<float>(12 * 8), moment = std::vector<float>(12 * 5);
  std::vector<bf16> norm = std::vector<bf16>(5);
  std::vector<float> scale = std::vector<float>(1), more;
  std::vector<StatePart> model, optimizer;

  /// `more_floats` adds a tensor of that size, "more".
  explicit TrainingState(int64_t more_floats = 0) : more(static_cast<size_t>(more_floats)) {
    Rows wide = Rows(View{address(attn), DType::f32, {12, 8}});
    model.push_back({"c_attn.weight", wide.columns(0, 5), true, whole({5, 12}), {5, 12}});
    model.push_back({"ln.weight", Rows(View{address(norm), DType::bf16, {5}}), false, whole({5}), {5}});
    model.push_back({"scale", Rows(View{address(scale), DType::f32, {}}), false, whole({}), {}});
    if (more_floats)
      model.push_back(
          {"more", Rows(View{address(more), DType::f32, {more_floats}}), false, whole({more_floats}), {more_floats}});
    optimizer.push_back(
        {"exp_avg.c_attn.weight", Rows(View{address(moment), DType::f32, {12, 5}}), true, whole({5, 12}), {5, 12}});
  }
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  /// Values that belong to this step alone.
  void set(int64_t to) {
    step = to;
    fill(static_cast<float>(to) * 0.125f + 1);
  }
  CheckpointInfo save(const std::string& dir) const {
    return save_checkpoint(dir, step, model, optimizer, {{"step", step}},
                           {{"config.yaml", fmt::format("step: {}\n", step)}});
  }
  /// Whether the checkpoint holds exactly these values. Loads it into another state to see.
  bool equals(const Checkpoint& checkpoint) const {
    TrainingState other(static_cast<int64_t>(more.size()));
    other.fill(-1);
    for (const StatePart& part : other.model) checkpoint.read(part);
    for (const StatePart& part : other.optimizer) checkpoint.read(part);
    bool same = other.moment == moment && other.scale == scale && other.more == more;
    for (size_t i = 0; i < norm.size(); ++i) same &= other.norm[i].bits == norm[i].bits;
    for (size_t i = 0; i < attn.size(); ++i)
      same &= i % 8 >= 5 ? other.attn[i] == -1 - static_cast<float>(i) : other.attn[i] == attn[i];
    return same;
  }

 private:
  template <class T>
  static uintptr_t address(const std::vector<T>& v) {
    return reinterpret_cast<uintptr_t>(v.data());
  }
  void fill(float start) {
    for (size_t i = 0; i < attn.size(); ++i) attn[i] = start - static_cast<float>(i);
    for (size_t i = 0; i < moment.size(); ++i) moment[i] = start + 1000 + static_cast<float>(i);
    for (size_t i = 0; i < norm.size(); ++i) norm[i] = bf16(start * 2 + static_cast<float>(i));
    for (size_t i = 0; i < more.size(); ++i) more[i] = start * static_cast<float>(i % 977);
    scale[0] = start * 3;
  }
};

}  // namespace chiron
