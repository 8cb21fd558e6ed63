#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/stream.h"
#include "core/tensor.h"

namespace chiron {

/// Sums are taken in rank order: of f32, bf16 and f16 in f32, rounded once at the end; of f64 in f64; of integers
/// exactly. So their bits depend neither on the transport nor on how a tensor is cut into pieces. The average is the
/// sum divided by the size (not of integers). The maximum of anything and a NaN is NaN.
enum class Reduce : uint8_t { sum, average, max };

enum class CommOp : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  barrier,
  split,
  send,
  receive,
};
constexpr std::array<const char*, 10> names_of(CommOp) {
  return {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
          "all_to_all", "barrier",        "split",      "send",      "receive"};
}

/// One call, as every rank that takes part must make it. Trivially copyable: it travels between ranks.
struct CommCall {
  CommOp op = CommOp::barrier;
  Reduce reduce = Reduce::sum;
  DType dtype = DType::u8;
  int32_t group = 0;     ///< number of the group; 0 is the world
  int32_t peer = 0;      ///< root of broadcast and reduce; the other side of send and receive
  int64_t elements = 0;  ///< of the larger side
  int64_t number = 0;    ///< counts the collectives of its group, and the messages between two of its ranks, from 1
  bool operator==(const CommCall&) const = default;
  /// "all_reduce #17 of f32 x 1024 (sum)"
  std::string str() const;
};

/// A group of ranks that act together. Collectives are called by every rank of the group, with equal sizes, and ranks
/// that share several groups call them in one order. Work is ordered on the stream given, as that of an op is: what the
/// stream waits for (Stream::wait) happens before, and an event recorded after the call marks its end. On the CPU a
/// collective is done when it returns. A dry stream moves nothing: sizes are checked and the trace is told of an op
/// "all_reduce dp", say, with its operands. A call takes no memory: scratch is a fixed buffer, through which long
/// tensors go in pieces. Parts are equal; rows that ranks do not divide are padded by the caller.
///
/// dtype: sums and averages take f32, f64, bf16, f16, sums and maxima also i32, i64, u8; what only moves takes any.
///
/// Throws CommError, within the group's time-out, on every rank, if a rank is gone, silent, or makes another call; it
/// names both sides. After that the group is of no more use.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int size() const { return size_; }
  int rank() const { return rank_; }
  /// "world", "dp", ...: for traces and messages.
  const std::string& name() const { return name_; }

  /// t <- reduction of every rank's t. Moves 2 (n - 1) / n of t's bytes to each rank. Any number of elements.
  void all_reduce(Stream& s, Tensor t, Reduce op);
  /// part <- this rank's share of the reduction of `all`, which holds size() * part.numel() elements, and, with more
  /// than one rank, stays as it is. part may be that very share of `all`.
  void reduce_scatter(Stream& s, Tensor part, View all, Reduce op);
  /// all <- every rank's part, one after another in rank order. all holds size() * part.numel() elements; part may be
  /// this rank's place in it.
  void all_gather(Stream& s, Tensor all, View part);
  /// t <- root's t.
  void broadcast(Stream& s, Tensor t, int root);
  /// On root: t <- reduction of every rank's t. On the others t stays as it is.
  void reduce(Stream& s, Tensor t, Reduce op, int root);
  /// Part k of `in` goes to rank k; part k of `out` came from rank k. Both hold size() equal parts and do not overlap.
  void all_to_all(Stream& s, Tensor out, View in);
  /// Returns when every rank has come.
  void barrier(Stream& s);

  /// Starts to send t to `peer` and returns a ticket; t must stay as it is until wait_sent(ticket). The messages from
  /// one rank to another arrive in the order in which they were sent. With many messages on their way it waits.
  int64_t send(Stream& s, View t, int peer);
  /// t <- the next message of `peer`, which has t's dtype and number of elements; waits for it.
  void receive(Stream& s, Tensor t, int peer);
  /// Waits until that message and all sent before it were taken. A group waits for its messages when it ends.
  void wait_sent(Stream& s, int64_t ticket);

  /// Groups of the ranks that give the same color, ordered by key, then by rank. Collective, and not on a dry stream.
  /// A negative color takes part and gets none. `name` is that of the new group.
  std::unique_ptr<Communicator> split(int color, int key, std::string name);

  /// Bytes that came from other ranks to this one, over this group and all others of its world.
  virtual int64_t bytes_received() const { return 0; }
  /// Bytes of the buffer that pieces go through: of each rank, shared by its groups.
  virtual int64_t scratch_bytes() const { return 0; }
  /// The last calls of this rank, newest first, a line each: for messages about failures.
  virtual std::string recent_calls() const { return {}; }

 protected:
  Communicator(int size, int rank, std::string name);

 private:
  /// Does the call, of more than one rank and on a stream that runs. Sides that a call does not have are absent.
  virtual void run(Stream& s, CommCall call, Tensor out, View in) = 0;
  virtual int64_t start_send(Stream& s, CommCall call, View t) = 0;
  virtual void finish_sends(Stream& s, int64_t ticket) = 0;
  virtual std::unique_ptr<Communicator> run_split(int color, int key, std::string name) = 0;
  void collective(Stream& s, CommOp op, Reduce how, int root, Tensor out, View in);

  int size_, rank_;
  std::string name_;
  std::array<std::string, names_of(CommOp{}).size()> op_names_;  ///< as a trace shows them: "all_reduce dp"
};

/// A group that is not there: for dry streams, which plan what one rank of many would do. A split of it is as if all
/// ranks gave the same color and order. A group of one works on every stream: nothing moves, and a gather or scatter
/// whose two sides are the same memory costs nothing.
class PlannedCommunicator : public Communicator {
 public:
  PlannedCommunicator(int size, int rank, std::string name) : Communicator(size, rank, std::move(name)) {}

 private:
  void run(Stream&, CommCall, Tensor, View) override;
  int64_t start_send(Stream&, CommCall, View) override;
  void finish_sends(Stream&, int64_t) override;
  std::unique_ptr<Communicator> run_split(int color, int key, std::string name) override;
};

/// A group of one.
class SelfCommunicator final : public PlannedCommunicator {
 public:
  SelfCommunicator() : PlannedCommunicator(1, 0, "self") {}
};

}  // namespace chiron
