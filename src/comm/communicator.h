#pragma once

#include "core/stream.h"
#include "core/tensor.h"

namespace chiron {

enum class Reduce : uint8_t { sum, average, max };

/// A group of ranks that act together. Calls are collective: every rank of the group makes the same calls in the same
/// order. Work is ordered on the stream given.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;
  /// t <- reduction of every rank's t, in rank order.
  virtual void all_reduce(Stream& s, Tensor t, Reduce op) = 0;
  /// all <- every rank's part, one after another in rank order. all holds size() * part.numel() elements.
  virtual void all_gather(Stream& s, Tensor all, View part) = 0;
  /// part <- this rank's share of the reduction of `all`.
  virtual void reduce_scatter(Stream& s, Tensor part, View all, Reduce op) = 0;
  virtual void broadcast(Stream& s, Tensor t, int root) = 0;
};

/// A group of one: nothing moves. An all-gather or reduce-scatter whose two sides are the same memory costs nothing.
class SelfCommunicator final : public Communicator {
 public:
  int size() const override { return 1; }
  int rank() const override { return 0; }
  void all_reduce(Stream&, Tensor, Reduce) override {}
  void all_gather(Stream& s, Tensor all, View part) override { copy(s, all, part); }
  void reduce_scatter(Stream& s, Tensor part, View all, Reduce) override { copy(s, part, all); }
  void broadcast(Stream&, Tensor, int) override {}

 private:
  static void copy(Stream& s, Tensor to, View from) {
    if (to.at != from.at) s.copy(to, from);
  }
};

}  // namespace chiron
