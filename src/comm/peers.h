#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace chiron {

/// A group of ranks over a transport, on the CPU: who owns which part of a tensor, and who adds what up in which order,
/// for threads and processes alike.
class PeerCommunicator final : public Communicator {
 public:
  /// `piece_bytes`: the most that one rank takes from another at once when it sums; 0: any. A transport without shared
  /// memory needs size times as much scratch memory.
  PeerCommunicator(std::unique_ptr<Transport> transport, std::shared_ptr<RankState> state, int size, int rank,
                   int group, std::string name, int64_t piece_bytes);
  ~PeerCommunicator() override;

  int64_t bytes_received() const override { return state_->received; }
  int64_t scratch_bytes() const override { return static_cast<int64_t>(state_->scratch().size()); }
  std::string recent_calls() const override { return state_->recent_calls(); }

 private:
  /// Elements cut into one run for each rank, all but the last ones of `each`.
  struct Cut {
    int64_t total, each;
    int64_t begin(int k) const { return std::min(total, k * each); }
    int64_t count(int k) const { return begin(k + 1) - begin(k); }
  };
  void run(Stream& s, CommCall call, Tensor out, View in) override;
  int64_t start_send(Stream& s, CommCall call, View t) override;
  void finish_sends(Stream& s, int64_t ticket) override;
  std::unique_ptr<Communicator> run_split(int color, int key, std::string name) override;

  void begin(CommCall& call);
  void clear();
  void exchange(const CommCall& call);
  void reduce_runs(Stream& s, const CommCall& call, std::byte* to, const std::byte* from, Cut cut);
  void reduce_to_root(Stream& s, const CommCall& call, std::byte* t);
  void gather_runs(Stream* s, const CommCall& call, std::byte* all, const std::byte* own, Cut cut);
  void broadcast_runs(Stream& s, const CommCall& call, std::byte* t, Cut cut);
  void exchange_parts(Stream& s, const CommCall& call, std::byte* out, const std::byte* in, int64_t part);
  void sum_round(Stream& s, const CommCall& call, std::byte* to, const std::byte* own, int64_t bytes);

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<RankState> state_;
  int group_;
  int64_t piece_bytes_;
  int64_t calls_ = 0, last_ticket_ = 0;
  bool first_ = false;                   ///< the next round begins a call
  std::vector<int64_t> sent_, taken_;    ///< messages to and from each rank
  std::vector<Stretch> out_, in_;        ///< of the round, by rank
  std::vector<const std::byte*> terms_;  ///< of a sum, by rank
};

}  // namespace chiron
