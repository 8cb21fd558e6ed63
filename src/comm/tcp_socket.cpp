#include "comm/tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace chiron {
namespace {

struct FreeAddress {
  void operator()(addrinfo* a) const { ::freeaddrinfo(a); }
};
using Address = std::unique_ptr<addrinfo, FreeAddress>;

/// None if the name is unknown.
Address resolve(const std::string& address, int port, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found))
    why = ::gai_strerror(error);
  return Address(found);
}

bool is_loopback(const addrinfo& a) {
  if (a.ai_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(a.ai_addr)->sin_addr.s_addr) >> 24 == 127;
  return a.ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(a.ai_addr)->sin6_addr);
}

void set(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

Socket make_socket(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

/// Small messages go at once; a machine that is gone without a word is noticed after some twenty seconds.
void set_up(const Socket& s) {
  set(s.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  set(s.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(s.fd(), IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(s.fd(), IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(s.fd(), IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::optional<Socket> listen_at(const std::string& address, int port) {
  std::string why;
  const Address found = resolve(address, port, why);
  if (!found) throw CommError("the address {} at which ranks are to meet is unknown here: {}", address, why);
  addrinfo& a = *found;
  if (!is_loopback(a)) {
    if (a.ai_family == AF_INET)
      reinterpret_cast<sockaddr_in*>(a.ai_addr)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
      reinterpret_cast<sockaddr_in6*>(a.ai_addr)->sin6_addr = in6addr_any;
  }
  Socket s = make_socket(a.ai_family);
  set(s.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(s.fd(), a.ai_addr, a.ai_addrlen) == 0 && ::listen(s.fd(), SOMAXCONN) == 0) return s;
  if (errno == EADDRINUSE) return std::nullopt;
  throw CommError("rank 0 cannot listen at port {} for the address {}: {}", port, address, std::strerror(errno));
}

Socket connect_to(const std::string& address, int port, Clock::time_point deadline, std::string& why) {
  const Address found = resolve(address, port, why);
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Socket s = make_socket(a->ai_family);
    if (::connect(s.fd(), a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
      why = std::strerror(errno);
      continue;
    }
    if (!wait_for(s, true, deadline)) {
      why = "no answer";
      continue;
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      why = std::strerror(error);
      continue;
    }
    set_up(s);
    return s;
  }
  return {};
}

int port_of(const Socket& socket) {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&a), &size);
  return ntohs(a.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(a).sin_port
                                      : reinterpret_cast<sockaddr_in6&>(a).sin6_port);
}

Socket accept_from(const Socket& listener) {
  Socket s(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (s.open()) set_up(s);
  return s;
}

std::string frame_of(const Message& message) {
  auto put = [](std::string& to, size_t n) {
    const auto size = static_cast<uint32_t>(n);
    to.append(reinterpret_cast<const char*>(&size), sizeof size);
  };
  std::string body, frame;
  for (const std::string& text : message) {
    put(body, text.size());
    body += text;
  }
  put(frame, body.size());
  return frame + body;
}

bool FrameReader::fill(const Socket& socket) {
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(socket.fd(), buffer, sizeof buffer, 0);
    if (n > 0)
      bytes_.append(buffer, static_cast<size_t>(n));
    else if (n == 0)
      return false;
    else if (errno != EINTR)
      return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

std::optional<Message> FrameReader::next() {
  constexpr size_t kMost = 1 << 24;
  auto number = [&](size_t at) {
    uint32_t n = 0;
    std::memcpy(&n, bytes_.data() + at, sizeof n);
    return static_cast<size_t>(n);
  };
  constexpr size_t kSize = sizeof(uint32_t);
  if (bytes_.size() < kSize) return std::nullopt;
  const size_t size = number(0), end = kSize + size;
  if (size > kMost) throw CommError("these are not the bytes of a rank");
  if (bytes_.size() < end) return std::nullopt;
  Message message;
  for (size_t at = kSize; at < end;) {
    if (end - at < kSize || end - at - kSize < number(at)) throw CommError("these are not the bytes of a rank");
    const size_t n = number(at);
    message.push_back(bytes_.substr(at + kSize, n));
    at += kSize + n;
  }
  bytes_.erase(0, end);
  return message;
}

bool wait_for(const Socket& socket, bool to_write, Clock::time_point deadline) {
  pollfd p{socket.fd(), static_cast<short>(to_write ? POLLOUT : POLLIN), 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
    const int n = ::poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

bool write_all(const Socket& socket, const std::string& bytes, Clock::time_point deadline) {
  std::string rest = bytes;
  for (;;) {
    if (!write_some(socket, rest)) return false;
    if (rest.empty()) return true;
    if (!wait_for(socket, true, deadline)) return false;
  }
}

bool write_some(const Socket& socket, std::string& bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0)
      bytes.erase(0, static_cast<size_t>(n));
    else if (errno != EINTR)
      return errno == EAGAIN || errno == EWOULDBLOCK;
  }
  return true;
}

}  // namespace chiron
