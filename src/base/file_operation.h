#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

/// What files.cpp and file_lock.cpp change the disk with, and nobody else: the counting point of files.h.
namespace chiron::file_operation {

enum class Op : uint8_t { takes_space, takes_none };

/// Counts the operation that is about to happen. Returns false, with errno set, if it shall fail.
bool begin(Op op);

/// An operation that happens as a whole or not at all. `call` returns -1 and sets errno on failure.
template <class Call>
int operate(Op op, Call&& call) {
  if (!begin(op)) return -1;
  int result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

/// Writes all bytes: one operation. Returns false and sets errno on failure.
bool operate_write(int fd, const char* data, size_t bytes);

}  // namespace chiron::file_operation
