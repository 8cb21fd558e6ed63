#include "comm/thread_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/peers.h"

namespace chiron {
namespace {

/// Messages on their way from one rank to another, at most.
constexpr int64_t kMailbox = 64;

/// What the threads of one group share; guarded by the world's mutex.
struct Group {
  struct Slot {
    int64_t posted = 0, finished = 0;  ///< rounds
    CommCall call;
    const Stretch* out = nullptr;
    bool reading = false;  ///< the others' memory, from the end of exchange() to finish()
  };
  struct Mail {
    CommCall call;
    Stretch piece;
  };
  struct Mailbox {
    std::vector<Mail> mail = std::vector<Mail>(kMailbox);  ///< a ring
    int64_t posted = 0, taken = 0;
  };
  explicit Group(std::vector<int> ranks) : members(std::move(ranks)), slots(members.size()) {
    boxes.resize(members.size() * members.size());
  }
  Mailbox& box(int from, int to) { return boxes[static_cast<size_t>(from) * members.size() + static_cast<size_t>(to)]; }

  std::vector<int> members;  ///< by rank of the group, the rank of the world
  std::vector<Slot> slots;
  std::vector<Mailbox> boxes;
  std::condition_variable changed;
};

/// All that thread ranks share.
struct ThreadWorld {
  std::mutex mutex;
  std::string failure;        ///< empty: none
  std::exception_ptr thrown;  ///< by the first rank that threw
  struct Rank {
    bool ended = false;
    std::optional<CommCall> last;  ///< call that it made
  };
  std::vector<Rank> ranks;
  std::map<std::pair<int, int>, Group> groups;  ///< by number and first member

  void fail(const std::string& why) {
    if (failure.empty()) failure = why;
    for (auto& [key, group] : groups) group.changed.notify_all();
  }
};

using Lock = std::unique_lock<std::mutex>;

/// Threads read each other's memory: a round is two meetings, between which they do.
class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadWorld& world, std::shared_ptr<RankState> state, std::vector<int> members, int rank, int group,
                  std::chrono::milliseconds timeout)
      : world_(world), state_(std::move(state)), rank_(rank), timeout_(timeout) {
    sent_.reserve(kMailbox);
    const std::lock_guard lock(world_.mutex);
    me_ = members[static_cast<size_t>(rank)];
    const std::pair key{group, members.front()};
    group_ = &world_.groups.try_emplace(key, std::move(members)).first->second;
  }

  ~ThreadTransport() override {
    const std::lock_guard lock(world_.mutex);
    slot(rank_).reading = false;  // where summing itself threw
    group_->changed.notify_all();
  }

  void exchange(const CommCall& call, bool first, std::span<const Stretch> out, std::span<Stretch> in) override {
    Lock lock(world_.mutex);
    if (first) begin(call);
    Group::Slot& mine = slot(rank_);
    mine.call = call;
    mine.out = out.data();
    ++mine.posted;
    for (int k = 0; k < size(); ++k)
      if (slot(k).posted == mine.posted && slot(k).call != call)
        fail(fmt::format("ranks make different calls: rank {} {}, but rank {} {}", me_, state_->describe(call),
                         member(k), state_->describe(slot(k).call)));
    group_->changed.notify_all();
    wait(lock, call, [&](int k) { return slot(k).posted >= mine.posted; });
    for (int k = 0; k < size(); ++k) {
      Stretch& to = in[static_cast<size_t>(k)];
      const Stretch& from = slot(k).out[rank_];
      CHECK(k == rank_ || to.bytes == from.bytes, "{} bytes from rank {}, {} expected", from.bytes, k, to.bytes);
      if (to.bytes >= 0) to.at = from.at;
    }
    mine.reading = true;
  }

  void finish(const CommCall& call) override {
    Lock lock(world_.mutex);
    const int64_t round = ++slot(rank_).finished;
    slot(rank_).reading = false;
    group_->changed.notify_all();
    wait(lock, call, [&](int k) { return slot(k).finished >= round; });
  }

  int64_t send(const CommCall& call, Stretch out) override {
    if (sent_.size() == kMailbox) wait_sent(tickets_ - kMailbox + 1);
    Lock lock(world_.mutex);
    begin(call);
    Group::Mailbox& box = group_->box(rank_, call.peer);
    wait(lock, call, [&](int k) { return k != call.peer || box.posted - box.taken < kMailbox; });
    box.mail[static_cast<size_t>(box.posted % kMailbox)] = {call, out};
    sent_.push_back({call, box.posted++});
    group_->changed.notify_all();
    return ++tickets_;
  }

  void wait_sent(int64_t ticket) override {
    Lock lock(world_.mutex);
    while (!sent_.empty() && tickets_ - static_cast<int64_t>(sent_.size()) < ticket) {
      const auto [call, number] = sent_.front();
      const Group::Mailbox& box = group_->box(rank_, call.peer);
      wait(lock, call, [&](int k) { return k != call.peer || box.taken > number; });
      sent_.erase(sent_.begin());
    }
  }

  void receive(const CommCall& call, Stretch in) override {
    Lock lock(world_.mutex);
    begin(call);
    Group::Mailbox& box = group_->box(call.peer, rank_);
    wait(lock, call, [&](int k) { return k != call.peer || box.posted > box.taken; });
    const Group::Mail mail = box.mail[static_cast<size_t>(box.taken % kMailbox)];
    if (mail.call.dtype != call.dtype || mail.call.elements != call.elements)
      fail(fmt::format("rank {} does {}, but rank {} did {}", me_, state_->describe(call), member(call.peer),
                       state_->describe(mail.call)));
    // Under the lock: the sender cannot give up meanwhile.
    if (in.bytes > 0) std::memcpy(in.at, mail.piece.at, static_cast<size_t>(in.bytes));
    ++box.taken;
    group_->changed.notify_all();
  }

  std::unique_ptr<Transport> subset(std::span<const int> members, int group) override {
    std::vector<int> ranks;
    for (const int k : members) ranks.push_back(member(k));
    const auto rank = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
    return std::make_unique<ThreadTransport>(world_, state_, std::move(ranks), rank, group, timeout_);
  }

 private:
  int size() const { return static_cast<int>(group_->members.size()); }
  int member(int k) const { return group_->members[static_cast<size_t>(k)]; }
  Group::Slot& slot(int k) { return group_->slots[static_cast<size_t>(k)]; }

  [[noreturn]] void fail(const std::string& why) {
    const CommError error("rank {}: {}", me_, why);
    if (!world_.thrown) world_.thrown = std::make_exception_ptr(error);
    world_.fail(why);
    throw error;
  }

  void begin(const CommCall& call) {
    if (!world_.failure.empty()) throw CommError("rank {} in {}: {}", me_, state_->describe(call), world_.failure);
    world_.ranks[static_cast<size_t>(me_)].last = call;
  }

  /// Until there(k) holds for all ranks k of the group. A rank that gives up takes its memory with it, so it goes only
  /// when nobody reads that any more; one that has not begun to read sees the failure first.
  template <class F>
  void wait(Lock& lock, const CommCall& call, F there) {
    try {
      wait_or_fail(lock, call, there);
    } catch (const CommError&) {
      group_->changed.wait(lock, [&] {
        for (int k = 0; k < size(); ++k)
          if (k != rank_ && slot(k).reading) return false;
        return true;
      });
      throw;
    }
  }
  template <class F>
  void wait_or_fail(Lock& lock, const CommCall& call, F there) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    for (bool late = false;;) {
      if (!world_.failure.empty()) throw CommError("rank {} in {}: {}", me_, state_->describe(call), world_.failure);
      bool ready = true;
      for (int k = 0; k < size(); ++k) {
        if (there(k)) continue;
        ready = false;
        if (world_.ranks[static_cast<size_t>(member(k))].ended)
          fail(fmt::format("{} has ended, but {} needs it", rank_text(k), call_text(call)));
      }
      if (ready) return;
      if (late) {
        std::vector<std::string> missing;
        for (int k = 0; k < size(); ++k)
          if (!there(k)) missing.push_back(rank_text(k));
        fail(fmt::format("{} has waited {} ms for {}", call_text(call), timeout_.count(), fmt::join(missing, ", ")));
      }
      late = group_->changed.wait_until(lock, deadline) == std::cv_status::timeout;
    }
  }
  /// "rank 2 (its last call: barrier #3 in the group world)"
  std::string rank_text(int k) const {
    const std::optional<CommCall>& last = world_.ranks[static_cast<size_t>(member(k))].last;
    return fmt::format("rank {} ({})", member(k),
                       last ? "its last call: " + state_->describe(*last) : "it made no call");
  }
  std::string call_text(const CommCall& call) const {
    return fmt::format("{} of rank {}", state_->describe(call), me_);
  }

  ThreadWorld& world_;
  std::shared_ptr<RankState> state_;
  int rank_, me_;  ///< in the group, in the world
  std::chrono::milliseconds timeout_;
  Group* group_;
  struct Sent {
    CommCall call;
    int64_t number;  ///< in its mailbox
  };
  std::vector<Sent> sent_;  ///< oldest first; not known to be taken
  int64_t tickets_ = 0;
};

}  // namespace

void run_thread_ranks(int n, const std::function<void(Communicator&)>& f, const ThreadRankOptions& options) {
  CHECK(n >= 1, "{} ranks", n);
  ThreadWorld world;
  world.ranks.resize(static_cast<size_t>(n));
  std::vector<int> members;
  for (int k = 0; k < n; ++k) members.push_back(k);
  auto run = [&](int rank) {
    std::string why;
    try {
      if (n == 1) {
        SelfCommunicator self;
        return f(self);
      }
      auto state = std::make_shared<RankState>(0);
      auto transport = std::make_unique<ThreadTransport>(world, state, members, rank, 0, options.timeout);
      PeerCommunicator comm(std::move(transport), state, n, rank, 0, "world", options.piece_bytes);
      f(comm);
    } catch (const std::exception& e) {
      why = fmt::format("rank {} has failed: {}", rank, e.what());
      const std::lock_guard lock(world.mutex);
      if (!world.thrown) world.thrown = std::current_exception();
      world.fail(why);
    }
    const std::lock_guard lock(world.mutex);
    world.ranks[static_cast<size_t>(rank)].ended = true;
    for (auto& [key, group] : world.groups) group.changed.notify_all();
  };
  std::vector<std::thread> threads;
  for (int k = 1; k < n; ++k) threads.emplace_back(run, k);
  run(0);
  for (std::thread& thread : threads) thread.join();
  // Here too if it was found when a group ended, where nothing can be thrown.
  if (world.thrown) std::rethrow_exception(world.thrown);
}

}  // namespace chiron
