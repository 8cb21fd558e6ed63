#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace chiron {

/// Bytes on one side of a message between two ranks. Negative: no message.
struct Stretch {
  std::byte* at = nullptr;
  int64_t bytes = -1;
};

/// What each rank of a group of n may fill of a scratch buffer: whole elements of any type.
inline int64_t piece_of(int64_t scratch, int n) { return scratch / n / 64 * 64; }

/// What the groups of one rank share.
class RankState {
 public:
  /// `scratch`: bytes of the buffer for pieces.
  explicit RankState(int64_t scratch) : scratch_(static_cast<size_t>(scratch)) {}

  void begin(const CommCall& call);
  void done() { recent_[newest_].done = true; }
  std::string recent_calls() const;
  /// "all_reduce #17 of f32 x 1024 (sum) in the group dp"
  std::string describe(const CommCall& call) const;
  void name_group(int group, const std::string& name);
  /// Every later group of these ranks gets a number above all those that its ranks know.
  int next_group() const { return static_cast<int>(names_.size()); }
  std::span<std::byte> scratch() { return scratch_; }

  int64_t received = 0;  ///< bytes that came from other ranks

 private:
  struct Entry {
    CommCall call;
    bool used = false, done = false;
  };
  std::array<Entry, 32> recent_;
  size_t newest_ = 0;
  std::vector<std::string> names_;  ///< by number of the group
  std::vector<std::byte> scratch_;
};

/// How bytes get from rank to rank of one group: all that a kind of ranks must bring to be a Communicator. Driven by
/// one thread. Failures are CommErrors, as communicator.h has them; each wait ends within the time-out.
class Transport {
 public:
  virtual ~Transport() = default;

  /// One round of `call`, in which every rank of the group takes part: rank k gets out[k], and what it sends comes to
  /// in[k], or in[k].at is set to where it lies in memory that both share. Our own places are not looked at. Both ends
  /// give the same bytes. `first`: the round begins a call, which must be the same on every rank.
  virtual void exchange(const CommCall& call, bool first, std::span<const Stretch> out, std::span<Stretch> in) = 0;
  /// Ends the round: what in[k] pointed to may change from now on, and so may out[k].
  virtual void finish(const CommCall& call) = 0;

  /// Starts a message to call.peer; the ticket is above earlier ones.
  virtual int64_t send(const CommCall& call, Stretch out) = 0;
  /// Waits until the messages up to this ticket were taken.
  virtual void wait_sent(int64_t ticket) = 0;
  /// Waits for the next message of call.peer, which must be as `call` says.
  virtual void receive(const CommCall& call, Stretch in) = 0;

  /// That of a group of some ranks of this one, `group` its number; every member calls it.
  virtual std::unique_ptr<Transport> subset(std::span<const int> members, int group) = 0;
};

}  // namespace chiron
