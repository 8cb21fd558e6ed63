#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace chiron {

/// What a rank tells the others of itself.
struct StoreOptions {
  std::string address;  ///< where rank 0 listens
  int port = 0;
  int num_ports = 1;  ///< port, port + 1, ...: rank 0 takes the first that is free
  int rank = 0, world = 1;
  std::string job;  ///< a process of another job is turned away
  std::chrono::milliseconds timeout{60'000};
  /// {"build", "0.1.0"}, {"GPU vendor", "none"}, {"configuration", hash}: must be the same on every rank.
  std::vector<std::pair<std::string, std::string>> identity;
  std::string note;  ///< what the others are told of this rank when all have met
  std::string host;  ///< for messages; empty: this machine's name
};

/// Marks an error that rank 0 has told to all ranks, and says itself: this one may keep silent.
struct SaidByFirst {
  virtual ~SaidByFirst() = default;
};
template <class E>
struct Told : E, SaidByFirst {
  using E::E;
};

/// Where ranks meet and leave each other small values. Rank 0 listens; it serves in a thread of its own. It carries no
/// tensors. Every wait ends within the time-out, with a CommError that names the ranks that are missing. Not
/// thread-safe, but for failure().
class TcpStore {
 public:
  /// Meets the others: returns when all ranks are there and their identities agree. CommError names missing ranks,
  /// two processes with one rank, a world of another size, a port in use, another version of the protocol; ConfigError
  /// names both sides of identities that differ. What rank 0 tells the others is a Told error there.
  explicit TcpStore(const StoreOptions& options);
  /// Without leave() the others are told that this rank has ended in the middle.
  ~TcpStore();
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  void set(const std::string& key, const std::string& value);
  /// The value, once some rank has set it.
  std::string get(const std::string& key);
  void wait(const std::string& key);
  /// Adds to a number, which starts at 0, and returns the sum.
  int64_t add(const std::string& key, int64_t n);
  /// Returns when every rank has come to the barrier of this name, which may be used again.
  void barrier(const std::string& name);

  struct Verdict {
    bool speaks;    ///< this rank, and no other, is to tell the user: who was heard first, or a rank that is left
    ExitCode code;  ///< of whatever ended the job
  };
  /// Tells all ranks, this one too, why the job ends. The first to say so is heard.
  Verdict fail(const std::string& why, ExitCode code = ExitCode::comm);
  /// Why the job ends, if a rank said so, ended in the middle, or rank 0 is gone. Does not wait. Any thread.
  std::optional<std::string> failure();
  /// This rank is done; the others may go on without it, unless they need rank 0.
  void leave();

  /// The port that rank 0 listens on.
  int port() const;
  /// "host pid 12" of each rank, in rank order.
  const std::vector<std::string>& members() const;
  /// The note of each rank.
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chiron
