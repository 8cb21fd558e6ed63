#include "comm/store_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"

namespace chiron {
namespace {

constexpr size_t kHelloFields = 8;   ///< before the identity
constexpr size_t kStableFields = 7;  ///< of every version, past and to come: those that a refusal needs

struct Waiting {
  enum Kind : uint8_t { nothing, value, barrier } kind = nothing;
  std::string name;
  Clock::time_point deadline;
  std::chrono::milliseconds time{};
};

struct Client {
  Socket socket;
  FrameReader reader;
  std::string out;
  int rank = -1;  ///< -1: has not said
  std::string who, note;
  Message identity;
  Waiting waiting;
  bool left = false, gone = false;

  void tell(const Message& m) {
    out += frame_of(m);
    if (!write_some(socket, out)) out.clear();
  }
};

int number_in(const std::string& text) { return std::atoi(text.c_str()); }

}  // namespace

std::string list_of_ranks(const std::vector<int>& ranks) {
  std::string text;
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < std::min(kShown, ranks.size()); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  if (ranks.size() > kShown) text += fmt::format(" and {} more", ranks.size() - kShown);
  return text;
}

std::string this_process(const std::string& host) {
  char name[256] = "unknown";
  if (host.empty()) ::gethostname(name, sizeof name - 1);
  return fmt::format("{} pid {}", host.empty() ? name : host.c_str(), ::getpid());
}

std::string ended_text(int rank, const std::string& who) {
  return fmt::format("rank {} ({}) has ended in the middle; its own last message says more", rank, who);
}

struct StoreServer::State {
  Socket listener;
  StoreOptions options;
  Socket wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> stop{false}, left{false};

  // Of the thread alone.
  std::list<Client> clients;
  std::map<int, Client*> members;
  std::map<std::string, std::string> values;
  std::map<std::string, std::set<int>> barriers;
  std::string failure;
  int speaker = 0;  ///< who tells the user
  ExitCode code = ExitCode::comm;
  std::map<int, std::string> went;  // members that were gone again before all met
  std::set<int> told;               // ranks that know the failure
  bool meeting = true;
  std::thread thread;

  void fail(const std::string& why, int says = 0, ExitCode with = ExitCode::comm) {
    if (!failure.empty()) return;
    failure = why;
    speaker = says;
    code = with;
    for (Client& c : clients)
      if (c.rank >= 0) tell_failure(c);
  }
  void tell_failure(Client& c) {
    c.tell({"failed", failure, std::to_string(speaker), std::to_string(static_cast<int>(code))});
    told.insert(c.rank);
  }

  void hello(Client& c, const Message& m) {
    if (m.size() < kStableFields || m[1] != kStoreMagic) throw CommError("not one of ours");
    const int rank = number_in(m[4]), world = number_in(m[5]);
    c.who = m[6];
    if (m[3] != options.job) {
      c.tell({"other job"});
      c.gone = true;
      return;
    }
    c.rank = rank;
    if (m[2] != kStoreVersion)
      fail(fmt::format("rank {} ({}) speaks version {} of the store, rank 0 version {}: start one build everywhere",
                       rank, c.who, m[2], kStoreVersion));
    else if (world != options.world || rank < 0 || rank >= world)
      fail(fmt::format("rank {} ({}) was started as one of {} ranks, rank 0 as one of {}", rank, c.who, world,
                       options.world));
    else if (auto other = members.find(rank); other != members.end() && other->second->who != c.who)
      fail(fmt::format("two processes say that they are rank {}: {}, {}", rank, other->second->who, c.who));
    if (!failure.empty()) return tell_failure(c);
    if (auto other = members.find(rank); other != members.end()) other->second->left = true;  // it connected again
    if (m.size() < kHelloFields) throw CommError("not one of ours");
    c.note = m[kStableFields];
    c.identity.assign(m.begin() + kHelloFields, m.end());
    members[rank] = &c;
    c.tell({"welcome"});
    if (static_cast<int>(members.size()) == options.world) meet();
  }

  void meet() {
    meeting = false;
    const Client& first = *members.begin()->second;
    Message all{"met"};
    std::string differ;
    for (const auto& [rank, c] : members) {
      all.push_back(c->who);
      all.push_back(c->note);
      if (c->identity == first.identity || !differ.empty()) continue;
      for (size_t i = 0; i + 1 < std::max(c->identity.size(), first.identity.size()); i += 2) {
        if (i >= std::min(c->identity.size(), first.identity.size()) && !differ.empty()) break;
        auto at = [](const Client& of, size_t k) { return k < of.identity.size() ? of.identity[k] : "none"; };
        if (at(*c, i + 1) != at(first, i + 1))
          differ += fmt::format("{}rank {} ({}) has the {} {}, rank 0 ({}) has {}", differ.empty() ? "" : "; ", rank,
                                c->who, at(*c, i), at(*c, i + 1), first.who, at(first, i + 1));
      }
    }
    for (const auto& [rank, c] : members) c->tell(differ.empty() ? all : Message{"differ", differ});
  }

  void answer(Client& c, const Message& m) {
    const std::string& what = m.at(0);
    if (what == "hello") return hello(c, m);
    if (c.rank < 0) throw CommError("not one of ours");
    if (what == "bye") {
      c.left = true;
    } else if (what == "fail") {
      fail(m.at(1), c.rank, static_cast<ExitCode>(number_in(m.at(2))));
    } else if (!failure.empty()) {
      return;  // it has been told
    } else if (what == "set") {
      values[m.at(1)] = m.at(2);
      c.tell({"ok"});
      for (Client& other : clients)
        if (other.waiting.kind == Waiting::value && other.waiting.name == m[1]) release(other, m[2]);
    } else if (what == "add") {
      std::string& value = values[m.at(1)];
      value = std::to_string(std::atoll(value.c_str()) + std::atoll(m.at(2).c_str()));
      c.tell({"ok", value});
    } else if (what == "get") {
      wait(c, Waiting::value, m);
      if (auto at = values.find(m[1]); at != values.end()) release(c, at->second);
    } else if (what == "barrier") {
      wait(c, Waiting::barrier, m);
      std::set<int>& there = barriers[m[1]];
      there.insert(c.rank);
      if (static_cast<int>(there.size()) < options.world) return;
      barriers.erase(m[1]);
      for (Client& other : clients)
        if (other.waiting.kind == Waiting::barrier && other.waiting.name == m[1]) release(other, {});
    } else {
      throw CommError("not one of ours");
    }
  }

  static void wait(Client& c, Waiting::Kind kind, const Message& m) {
    const std::chrono::milliseconds time(std::atoll(m.at(2).c_str()));
    c.waiting = {kind, m[1], Clock::now() + time, time};
  }
  static void release(Client& c, const std::string& value) {
    c.waiting = {};
    c.tell({"ok", value});
  }

  void late(Client& c) {
    const Waiting w = std::exchange(c.waiting, {});
    if (w.kind == Waiting::value) {
      c.tell({"late", fmt::format("rank {} ({}) has waited {} ms for {}, which no rank has set", c.rank, c.who,
                                  w.time.count(), w.name)});
      return;
    }
    std::vector<int> missing;
    for (int k = 0; k < options.world; ++k)
      if (!barriers[w.name].contains(k)) missing.push_back(k);
    barriers[w.name].erase(c.rank);
    c.tell(
        {"late", fmt::format("rank {} ({}) has waited {} ms at the barrier {} for {} {}", c.rank, c.who, w.time.count(),
                             w.name, missing.size() == 1 ? "rank" : "ranks", list_of_ranks(missing))});
  }

  void missing_at_meeting() {
    std::vector<int> missing;
    for (int k = 0; k < options.world; ++k)
      if (!members.contains(k)) missing.push_back(k);
    std::string text =
        fmt::format("{} {} of {} did not come to {}:{} within {:.3g} s", missing.size() == 1 ? "rank" : "ranks",
                    list_of_ranks(missing), options.world, options.address, port_of(listener),
                    std::chrono::duration<double>(options.timeout).count());
    for (const auto& [rank, who] : went)
      if (!members.contains(rank)) text += fmt::format("; rank {} ({}) came and went again", rank, who);
    fail(text);
  }

  void read(Client& c) {
    const bool more = c.reader.fill(c.socket);
    try {
      while (auto m = c.reader.next()) answer(c, *m);
    } catch (const std::exception&) {
      c.gone = true;  // some other program; it is not worth a word
    }
    c.gone = c.gone || !more;
    if (!c.gone || c.rank < 0 || c.left) return;
    if (meeting)
      went[c.rank] = c.who;
    else
      fail(ended_text(c.rank, c.who));
  }

  void run() {
    const Clock::time_point patience = Clock::now() + options.timeout;
    // If the meeting failed, those who come late are told so too, for a moment.
    Clock::time_point last_call = Clock::time_point::max();
    auto more = [&] {
      if (!stop) return true;
      if (!meeting || failure.empty() || static_cast<int>(told.size()) >= options.world) return false;
      last_call = std::min(last_call, Clock::now() + std::chrono::seconds(1));
      return Clock::now() < last_call;
    };
    while (more()) {
      std::vector<pollfd> polls{{stop ? -1 : wake.fd(), POLLIN, 0}, {listener.fd(), POLLIN, 0}};
      Clock::time_point next = Clock::now() + std::chrono::hours(1);
      if (stop) next = last_call;
      if (meeting && failure.empty()) next = patience;
      for (const Client& c : clients) {
        polls.push_back({c.socket.fd(), static_cast<short>(c.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
        if (c.waiting.kind != Waiting::nothing) next = std::min(next, c.waiting.deadline);
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count() + 1;
      ::poll(polls.data(), polls.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
      size_t at = 2;
      for (Client& c : clients) {
        const short events = polls[at++].revents;
        if ((events & POLLOUT) && !write_some(c.socket, c.out)) c.out.clear();
        if (events & ~POLLOUT) read(c);
        if (c.waiting.kind != Waiting::nothing && Clock::now() >= c.waiting.deadline) late(c);
      }
      if (polls[1].revents)
        if (Socket s = accept_from(listener); s.open()) clients.emplace_back().socket = std::move(s);
      clients.remove_if([&](Client& c) {
        if (auto at = members.find(c.rank); c.gone && at != members.end() && at->second == &c) members.erase(at);
        return c.gone;
      });
      if (meeting && failure.empty() && Clock::now() >= patience) missing_at_meeting();
    }
    if (!left) fail(ended_text(0, this_process(options.host)), 1);
    for (Client& c : clients) {
      if (left) c.tell({"end"});
      write_all(c.socket, c.out, Clock::now() + std::chrono::seconds(1));
    }
  }
};

StoreServer::StoreServer(Socket listener, const StoreOptions& options) : state_(std::make_unique<State>()) {
  state_->listener = std::move(listener);
  state_->options = options;
  state_->thread = std::thread([this] { state_->run(); });
}

void StoreServer::leave() { state_->left = true; }

StoreServer::~StoreServer() {
  state_->stop = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(state_->wake.fd(), &one, sizeof one);  // an eventfd takes a one
  state_->thread.join();
}

}  // namespace chiron
