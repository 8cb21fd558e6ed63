#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"
#include "io/box_copy.h"
#include "train/saver.h"

namespace chiron {

/// A training state that n ranks share, for tests: matrices cut by rows, by columns and both, unevenly, transposed, and
/// with gaps in memory; a vector that all ranks hold; moments. Rank r's part of it, the same tensors for every n.
class CutState {
 public:
  CutState(int rank, int n) {
    const auto cut = [&](int64_t size, int k) { return size * k * (k + 1) / (int64_t{n} * (n + 1)); };  // the last most
    const int64_t rows = cut(kRows, rank), rows_end = cut(kRows, rank + 1);
    const int64_t cols = cut(kCols, rank), cols_end = cut(kCols, rank + 1);
    add("by_rows", {{rows, 0}, {rows_end - rows, kCols}}, {kRows, kCols});
    add("by_columns", {{0, cols}, {kRows, cols_end - cols}}, {kRows, kCols}, {.gap = 3});
    add("transposed", {{0, cols}, {kRows, cols_end - cols}}, {kRows, kCols}, {.transposed = true});
    // As q, k and v of GPT-2 under tensor parallelism: of one tensor three parts that do not touch.
    for (int64_t third = 0; third < 3; ++third)
      add("qkv", {{third * kRows + rows, 0}, {rows_end - rows, 5}}, {3 * kRows, 5});
    // Of each rank's columns a neighbour has the first rows.
    const int next = (rank + 1) % n;
    add("both", {{0, cut(kCols, next)}, {4, cut(kCols, next + 1) - cut(kCols, next)}}, {kRows, kCols});
    add("both", {{4, cols}, {kRows - 4, cols_end - cols}}, {kRows, kCols});
    add("vector", whole({7}), {7}, {.unsaved = rank != n - 1});
    add("exp_avg.by_rows", {{rows, 0}, {rows_end - rows, kCols}}, {kRows, kCols}, {.moment = true});
    for (size_t i = 0; i < memory_.size(); ++i) {
      StatePart& part = parts_[i];
      part.data.at = reinterpret_cast<uintptr_t>(memory_[i].data());
      if (saved_[i]) (moment_[i] ? contents_.optimizer : contents_.model).push_back(part);
    }
  }
  CutState(const CutState&) = delete;
  CutState& operator=(const CutState&) = delete;

  /// Values that belong to this step alone.
  void set(int64_t step) {
    contents_.step = step;
    contents_.state = {{"step", step}};
    contents_.extra = {{"config.json", "{}\n"}};
    for_each([&](float& x, float value) { x = value; }, step);
  }
  SaveContents contents() const { return contents_; }
  /// Reads all of it from a checkpoint of any cut; whether these are the values of its step.
  bool loads(const Checkpoint& checkpoint) {
    set(-1);
    for (const StatePart& part : parts_) checkpoint.read(part);
    bool same = true;
    for_each([&](float& x, float value) { same &= x == value; }, checkpoint.step());
    return same;
  }

 private:
  static constexpr int64_t kRows = 23, kCols = 19;
  struct How {
    bool transposed, moment, unsaved;
    int64_t gap;  ///< between rows in memory
  };

  void add(const std::string& name, const Box& box, const Shape& global, const How& how = {}) {
    StatePart part{.name = name, .data = {}, .transposed = how.transposed, .part = box, .global = global};
    const bool vector = box.size.rank == 1;
    Rows& data = part.data;
    data.rows = vector ? 1 : box.size[how.transposed ? 1 : 0];
    data.cols = vector ? box.size[0] : box.size[how.transposed ? 0 : 1];
    data.ld = data.cols + how.gap;
    memory_.emplace_back(static_cast<size_t>(data.rows * data.ld));
    parts_.push_back(part);
    moment_.push_back(how.moment);
    saved_.push_back(!how.unsaved);
  }

  /// f(element in memory, what it is at that step), of all parts.
  template <class F>
  void for_each(F&& f, int64_t step) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const StatePart& part = parts_[i];
      const auto key = static_cast<float>(part.name.size() * 1000 + static_cast<size_t>(step + 1) * 100'000);
      for (int64_t r = 0; r < part.data.rows; ++r)
        for (int64_t c = 0; c < part.data.cols; ++c) {
          int64_t row = part.transposed ? c : r, col = part.transposed ? r : c;
          if (part.global.rank == 1) row = 0;
          const int64_t first_row = part.global.rank == 1 ? 0 : part.part.offset[0];
          const int64_t first_col = part.part.offset[part.global.rank - 1];
          f(memory_[i][static_cast<size_t>(r * part.data.ld + c)],
            key + static_cast<float>((first_row + row) * 25 + first_col + col));
        }
    }
  }

  std::vector<std::vector<float>> memory_;
  std::vector<StatePart> parts_;
  std::vector<bool> moment_, saved_;
  SaveContents contents_;
};

}  // namespace chiron
