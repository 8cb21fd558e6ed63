#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/tcp_socket.h"
#include "comm/tcp_store.h"

namespace chiron {

/// The protocol of the store, version kStoreVersion. A client begins with
///   hello, kStoreMagic, version, job, rank, world, "host pid 12", note, then names and values of its identity
/// and is told at once `welcome` or `other job` or `failed`; when all have come, `met` with each rank's process and
/// note, or `differ`. Then it asks: set key value | get key ms | add key n | barrier name ms | fail why | bye, and is
/// told `ok value` or `late why`; but for bye. At any time it may be told `failed why`, after which nothing else comes,
/// or `end`.
inline constexpr const char* kStoreMagic = "chiron store";
inline constexpr const char* kStoreVersion = "1";

/// Rank 0's side of the store: a thread that owns all connections.
class StoreServer {
 public:
  StoreServer(Socket listener, const StoreOptions& options);
  /// Tells the clients that this was the end, or, unless `leave` was called, that rank 0 has failed.
  ~StoreServer();
  void leave();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "1 and 3", "0, 2 and 5": ranks in messages.
std::string list_of_ranks(const std::vector<int>& ranks);
/// What the others are told of a rank that ended without a word.
std::string ended_text(int rank, const std::string& who);
/// "host pid 12", of this process.
std::string this_process(const std::string& host);

}  // namespace chiron
