#pragma once

#include <cstddef>
#include <cstdint>

namespace chiron {

/// What we take of an MPI library, as plain functions. The program itself is linked to no MPI: one process needs none,
/// and a machine without it runs the same program. What includes mpi.h is compiled into a small library of its own,
/// libchiron_mpi.so (mpi_library.cpp), which lies beside the program and is opened when ranks are to be joined; it, not
/// we, is bound to the layout of one MPI's types. A build that finds no mpi.h makes no such library.
///
/// Functions return 0, or an error code that error_text() explains. Requests are numbers that the library keeps; 0 is
/// none. Nothing here waits but start() and stop().
struct MpiApi {
  const char* version;  ///< of the MPI that it was compiled for
  /// MPI_Init_thread with MPI_THREAD_FUNNELED; rank and size of the world.
  int (*start)(int* rank, int* size);
  int (*stop)();
  /// `bytes` at most 2^31 - 1.
  int (*send)(const void* from, int64_t bytes, int to, int tag, uintptr_t* request);
  int (*receive)(void* to, int64_t bytes, int from, int tag, uintptr_t* request);
  /// If the request is done: *request is 0, and *bytes what came.
  int (*test)(uintptr_t* request, int64_t* bytes);
  void (*cancel)(uintptr_t request);
  void (*error_text)(int code, char* text, size_t size);
};

/// The one symbol of libchiron_mpi.so. A change of MpiApi changes it.
inline constexpr const char* kMpiEntry = "chiron_mpi_api_1";

}  // namespace chiron
