#include "comm/mpi_ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi_api.h"
#include "comm/peers.h"

namespace chiron {
namespace {

using Clock = std::chrono::steady_clock;

/// Collectives of all groups share two tags, so that ranks whose calls differ see each other's; messages have two for
/// each group.
enum Tag : int { kCall, kBytes, kMessage, kMessageBytes, kTags };
constexpr int kMostTag = 32767;  // what every MPI allows
constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kMostSends = 64;

struct Opened {
  const MpiApi* api = nullptr;
  std::string why;
};

Opened open_library() {
  // RTLD_GLOBAL: Open MPI's own plug-ins look for its symbols.
  std::error_code error;
  const std::string here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "libchiron_mpi.so";
  void* library = ::dlopen(here.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    if (!std::filesystem::exists(here, error)) return {nullptr, "this build has none: there is no " + here};
    return {nullptr, ::dlerror()};
  }
  auto entry = reinterpret_cast<const MpiApi* (*)()>(::dlsym(library, kMpiEntry));
  if (!entry) return {nullptr, here + " belongs to another build"};
  return {entry(), ""};
}

/// MPI from its start to its end, and what is known of the other ranks.
class MpiWorld {
 public:
  MpiWorld(const MpiApi& api, const MpiRankOptions& options) : api_(api), options_(options) {
    int rank = 0, size = 0;
    check(api_.start(&rank, &size), "start MPI");
    if (rank != options.rank || size != options.world)
      throw ConfigError("MPI says that this is rank {} of {}, but the launcher said rank {} of {}{}", rank, size,
                        options.rank, options.world,
                        size == 1 ? ": was the program started by the mpirun of another MPI?" : "");
    heard_.resize(static_cast<size_t>(size));
  }
  ~MpiWorld() {
    if (std::uncaught_exceptions() == 0 && !failed_) api_.stop();
  }

  const MpiApi& api() const { return api_; }
  const MpiRankOptions& options() const { return options_; }

  void check(int code, const char* doing) {
    if (code == 0) return;
    char text[512] = "";
    api_.error_text(code, text, sizeof text);
    fail(fmt::format("rank {} cannot {}: {}", options_.rank, doing, text));
  }
  /// Tells all ranks.
  [[noreturn]] void fail(const std::string& why) {
    failed_ = true;
    if (options_.store) options_.store->fail(why);
    throw CommError("{}", why);
  }
  /// Throws if another rank has failed.
  void listen(const std::string& here) {
    if (!options_.store) return;
    if (auto why = options_.store->failure()) {
      failed_ = true;
      throw CommError("{}: {}", here, *why);
    }
  }
  void heard(int rank, const CommCall& call) { heard_[static_cast<size_t>(rank)] = call; }
  /// "rank 3 (tux pid 12, last heard of in barrier #3 in the group world)"
  std::string text(int rank, const RankState& state) const {
    const std::optional<CommCall>& last = heard_[static_cast<size_t>(rank)];
    const std::string who = options_.store ? options_.store->members()[static_cast<size_t>(rank)] + ", " : "";
    return fmt::format("rank {} ({}{})", rank, who,
                       last ? "last heard of in " + state.describe(*last) : "not yet heard of");
  }

 private:
  const MpiApi& api_;
  MpiRankOptions options_;
  bool failed_ = false;
  std::vector<std::optional<CommCall>> heard_;
};

/// Each call begins with a word to every rank that it exchanges bytes with, so that other calls and sizes are noticed;
/// the bytes follow without waiting for it.
class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiWorld> world, std::shared_ptr<RankState> state, std::vector<int> members, int rank,
               int group)
      : world_(std::move(world)),
        state_(std::move(state)),
        members_(std::move(members)),
        rank_(rank),
        tag_(kTags * group),
        sides_(members_.size()) {
    CHECK(tag_ + kTags <= kMostTag, "{} groups were split off", group);
  }

  ~MpiTransport() override {
    for (Side& s : sides_)
      for (uintptr_t request : {s.call_in.request, s.bytes_in.request})
        if (request) world_->api().cancel(request);
  }

  void exchange(const CommCall& call, bool first, std::span<const Stretch> out, std::span<Stretch> in) override {
    for (size_t k = 0; k < sides_.size(); ++k) {
      if (static_cast<int>(k) == rank_) continue;
      Side& s = sides_[k];
      s.first = first;
      if (in[k].bytes >= 0) {
        if (first) receive(s.call_in, &s.their_call, sizeof(CommCall), member(k), kCall);
        if (in[k].bytes > 0) receive(s.bytes_in, in[k].at, in[k].bytes, member(k), kBytes);
      }
      if (out[k].bytes >= 0) {
        if (first) s.call_out = send(&call, sizeof(CommCall), member(k), kCall);
        if (out[k].bytes > 0) s.bytes_out = send(out[k].at, out[k].bytes, member(k), kBytes);
      }
    }
    wait(call, [&] {
      bool done = true;
      for (size_t k = 0; k < sides_.size(); ++k) done = progress(call, static_cast<int>(k)) && done;
      return done;
    });
  }

  void finish(const CommCall&) override {}

  int64_t send(const CommCall& call, Stretch out) override {
    const int to = member(call.peer);
    for (int64_t at = 0; at == 0 || at < out.bytes; at += kMostBytes) {
      if (tickets_ - taken_ == kMostSends) wait_sent(taken_ + 1);
      Sent& s = sent_[static_cast<size_t>(tickets_++ % kMostSends)];
      s.call = call;
      if (at == 0) s.word = send(&s.call, sizeof(CommCall), to, tag_ + kMessage);
      if (out.bytes > 0) s.bytes = send(out.at + at, std::min(kMostBytes, out.bytes - at), to, tag_ + kMessageBytes);
    }
    return tickets_;
  }

  void wait_sent(int64_t ticket) override {
    for (; taken_ < ticket; ++taken_) {
      Sent& s = sent_[static_cast<size_t>(taken_ % kMostSends)];
      Side& peer = sides_[static_cast<size_t>(s.call.peer)];
      peer.waits = true;
      wait(s.call, [&] {
        sent(s.word);
        sent(s.bytes);
        return !s.word && !s.bytes;
      });
      peer.waits = false;
    }
  }

  void receive(const CommCall& call, Stretch in) override {
    Side& s = sides_[static_cast<size_t>(call.peer)];
    auto arrive = [&](Incoming& incoming) {
      s.waits = true;
      wait(call, [&] { return arrived(incoming, call, call.peer); });
      s.waits = false;
    };
    receive(s.call_in, &s.their_call, sizeof(CommCall), member(call.peer), tag_ + kMessage);
    arrive(s.call_in);
    world_->heard(member(call.peer), s.their_call);
    const CommCall& theirs = s.their_call;
    if (theirs.dtype != call.dtype || theirs.elements != call.elements || theirs.number != call.number)
      differ(call, call.peer);
    for (int64_t at = 0; at < in.bytes; at += kMostBytes) {
      receive(s.bytes_in, in.at + at, std::min(kMostBytes, in.bytes - at), member(call.peer), tag_ + kMessageBytes);
      arrive(s.bytes_in);
    }
  }

  std::unique_ptr<Transport> subset(std::span<const int> members, int group) override {
    std::vector<int> ranks;
    for (const int k : members) ranks.push_back(member(k));
    const auto rank = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
    return std::make_unique<MpiTransport>(world_, state_, std::move(ranks), rank, group);
  }

 private:
  struct Incoming {
    uintptr_t request = 0;
    int64_t bytes = 0;  ///< expected
  };
  /// What is under way with one rank.
  struct Side {
    Incoming call_in, bytes_in;
    uintptr_t call_out = 0, bytes_out = 0;
    CommCall their_call;
    bool first = false, waits = false;
    bool busy() const { return waits || call_in.request || bytes_in.request || call_out || bytes_out; }
  };
  /// A message on its way, or a piece of one.
  struct Sent {
    CommCall call;  // stays where it is while it is sent
    uintptr_t word = 0, bytes = 0;
  };

  template <class Index>
  int member(Index k) const {
    return members_[static_cast<size_t>(k)];
  }
  void receive(Incoming& to, void* at, int64_t bytes, int from, int tag) {
    to.bytes = bytes;
    world_->check(world_->api().receive(at, bytes, from, tag, &to.request), "receive");
  }
  uintptr_t send(const void* from, int64_t bytes, int to, int tag) {
    uintptr_t request = 0;
    world_->check(world_->api().send(from, bytes, to, tag, &request), "send");
    return request;
  }
  void sent(uintptr_t& request) {
    int64_t bytes = 0;
    if (request) world_->check(world_->api().test(&request, &bytes), "send");
  }
  bool arrived(Incoming& in, const CommCall& call, int k) {
    if (!in.request) return true;
    int64_t bytes = 0;
    const int error = world_->api().test(&in.request, &bytes);
    if (in.request) return false;
    if (error || bytes != in.bytes)
      world_->fail(fmt::format("{} got bytes of another size from {}: they make different calls", here(call),
                               world_->text(member(k), *state_)));
    return true;
  }
  /// Whether nothing is under way with rank k any more. The word on the call is looked at before the bytes.
  bool progress(const CommCall& call, int k) {
    Side& s = sides_[static_cast<size_t>(k)];
    if (s.call_in.request) {
      if (!arrived(s.call_in, call, k)) return false;
      world_->heard(member(k), s.their_call);
      if (s.their_call != call) differ(call, k);
    }
    sent(s.call_out);
    sent(s.bytes_out);
    return arrived(s.bytes_in, call, k) && !s.call_out && !s.bytes_out;
  }
  [[noreturn]] void differ(const CommCall& call, int k) {
    world_->fail(fmt::format("ranks make different calls: {}, but {}", here(call), world_->text(member(k), *state_)));
  }
  std::string here(const CommCall& call) const {
    return fmt::format("rank {} in {}", member(rank_), state_->describe(call));
  }

  /// Polls until done(). The other ranks are listened to now and then.
  template <class F>
  void wait(const CommCall& call, F done) {
    constexpr int kSpins = 1000;
    for (int i = 0; i < kSpins; ++i)
      if (done()) return;
    const auto start = Clock::now(), deadline = start + world_->options().timeout;
    for (auto listened = start; !done();) {
      const auto now = Clock::now();
      // There may be more ranks than cores. Who sleeps gets one sooner than who yields where others compute.
      if (now - start < std::chrono::milliseconds(50))
        ::sched_yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (now - listened < std::chrono::milliseconds(10)) continue;
      listened = now;
      world_->listen(here(call));
      if (now < deadline) continue;
      std::vector<std::string> missing;
      for (size_t k = 0; k < sides_.size(); ++k)
        if (sides_[k].busy()) missing.push_back(world_->text(member(k), *state_));
      world_->fail(fmt::format("{} has waited {} ms for {}", here(call), world_->options().timeout.count(),
                               fmt::join(missing, ", ")));
    }
  }

  std::shared_ptr<MpiWorld> world_;
  std::shared_ptr<RankState> state_;
  std::vector<int> members_;
  int rank_, tag_;
  std::vector<Side> sides_;
  std::vector<Sent> sent_ = std::vector<Sent>(kMostSends);  ///< a ring
  int64_t tickets_ = 0, taken_ = 0;
};

}  // namespace

std::string why_no_mpi() {
  const Opened opened = open_library();
  return opened.api ? "" : opened.why;
}

std::unique_ptr<Communicator> open_mpi_ranks(const MpiRankOptions& options) {
  const Opened opened = open_library();
  if (!opened.api) throw ConfigError("{} ranks cannot be joined, for there is no MPI: {}", options.world, opened.why);
  auto world = std::make_shared<MpiWorld>(*opened.api, options);
  auto state = std::make_shared<RankState>(options.scratch_bytes);
  std::vector<int> members;
  for (int k = 0; k < options.world; ++k) members.push_back(k);
  return std::make_unique<PeerCommunicator>(
      std::make_unique<MpiTransport>(std::move(world), state, std::move(members), options.rank, 0), state,
      options.world, options.rank, 0, "world", piece_of(options.scratch_bytes, options.world));
}

}  // namespace chiron
