#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chiron {

using Clock = std::chrono::steady_clock;

/// An owned socket. Writing to one whose other side is gone fails without a signal.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  void close();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Listens at a port of this machine: of the loopback interface if `address` lies there, else of all. Nothing if the
/// port is in use; CommError for all else that fails.
std::optional<Socket> listen_at(const std::string& address, int port);
/// A connection; closed if there is none by then, with the reason in `why`.
Socket connect_to(const std::string& address, int port, Clock::time_point deadline, std::string& why);
/// The port of a listening socket.
int port_of(const Socket& socket);
/// Next connection of a listening socket that poll() says has one; closed if it is gone again.
Socket accept_from(const Socket& listener);

/// Messages are lists of texts. A frame is a message with its length before it.
using Message = std::vector<std::string>;
std::string frame_of(const Message& message);

/// Cuts a stream of bytes into messages.
class FrameReader {
 public:
  /// Takes what has come, without waiting; false if the other side has closed or the connection is broken.
  bool fill(const Socket& socket);
  /// The next whole message; CommError if the bytes are none of ours.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

/// Waits until the socket can be read (or written), or `deadline`; false: it was the deadline.
bool wait_for(const Socket& socket, bool to_write, Clock::time_point deadline);
/// Writes all of it; false if the connection is broken or does not take it until `deadline`.
bool write_all(const Socket& socket, const std::string& bytes, Clock::time_point deadline);
/// Writes what goes without waiting, and removes it from `bytes`; false if the connection is broken.
bool write_some(const Socket& socket, std::string& bytes);

}  // namespace chiron
