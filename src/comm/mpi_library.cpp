// The whole of libchiron_mpi.so; no part of the program (see mpi_api.h).
#include <mpi.h>

#include <cstring>

#include "comm/mpi_api.h"

namespace {

static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t));

MPI_Comm world;

uintptr_t number_of(MPI_Request request) {
  uintptr_t number = 0;
  std::memcpy(&number, &request, sizeof request);
  return number;
}

MPI_Request request_of(uintptr_t number) {
  MPI_Request request;
  std::memcpy(&request, &number, sizeof request);
  return request;
}

int start(int* rank, int* size) {
  int provided = 0;
  if (int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided)) return error;
  // One of our own, whose errors come back to us.
  if (int error = MPI_Comm_dup(MPI_COMM_WORLD, &world)) return error;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  if (int error = MPI_Comm_rank(world, rank)) return error;
  return MPI_Comm_size(world, size);
}

int stop() { return MPI_Finalize(); }

int send(const void* from, int64_t bytes, int to, int tag, uintptr_t* request) {
  MPI_Request r;
  const int error = MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, to, tag, world, &r);
  *request = error ? 0 : number_of(r);
  return error;
}

int receive(void* to, int64_t bytes, int from, int tag, uintptr_t* request) {
  MPI_Request r;
  const int error = MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag, world, &r);
  *request = error ? 0 : number_of(r);
  return error;
}

int test(uintptr_t* request, int64_t* bytes) {
  MPI_Request r = request_of(*request);
  MPI_Status status{};
  int done = 0, count = 0;
  const int error = MPI_Test(&r, &done, &status);
  if (!done && !error) return 0;
  *request = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  *bytes = count;
  return error;
}

void cancel(uintptr_t request) {
  MPI_Request r = request_of(request);
  MPI_Cancel(&r);
}

void error_text(int code, char* text, size_t size) {
  char whole[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, whole, &length);
  std::strncpy(text, whole, size - 1);
  text[size - 1] = 0;
}

#ifdef OMPI_MAJOR_VERSION
constexpr const char* kVersion = "Open MPI";
#else
constexpr const char* kVersion = "MPI";
#endif

const chiron::MpiApi api{kVersion, start, stop, send, receive, test, cancel, error_text};

}  // namespace

extern "C" [[gnu::visibility("default")]] const chiron::MpiApi* chiron_mpi_api_1() { return &api; }
