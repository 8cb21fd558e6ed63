#include "comm/together.h"

#include <algorithm>
#include <exception>

#include "base/error.h"

namespace chiron {

int64_t largest(Communicator& c, Stream& s, int64_t mine) {
  if (c.size() == 1) return mine;
  Stream host = s.host();
  c.all_reduce(host, {reinterpret_cast<uintptr_t>(&mine), DType::i64, {1}}, Reduce::max);
  return mine;
}

std::vector<std::string> gather_texts(Communicator& c, Stream& s, const std::string& mine) {
  if (c.size() == 1) return {mine};
  Stream host = s.host();
  const auto ranks = static_cast<size_t>(c.size());
  // Parts of a gather are equal, so that shorter texts are filled up.
  const auto length = static_cast<size_t>(std::max<int64_t>(1, largest(c, s, static_cast<int64_t>(mine.size()))));
  std::vector<int64_t> sizes(ranks);
  std::string all(ranks * length, '\0'), part = mine;
  part.resize(length);
  const auto size = static_cast<int64_t>(mine.size());
  c.all_gather(host, {reinterpret_cast<uintptr_t>(sizes.data()), DType::i64, {c.size()}},
               {reinterpret_cast<uintptr_t>(&size), DType::i64, {1}});
  c.all_gather(host, {reinterpret_cast<uintptr_t>(all.data()), DType::u8, {static_cast<int64_t>(all.size())}},
               {reinterpret_cast<uintptr_t>(part.data()), DType::u8, {static_cast<int64_t>(length)}});
  std::vector<std::string> texts;
  for (size_t k = 0; k < ranks; ++k) texts.push_back(all.substr(k * length, static_cast<size_t>(sizes[k])));
  return texts;
}

void together(Communicator& c, Stream& s, const std::function<void()>& f) {
  if (c.size() == 1) return f();
  std::exception_ptr mine;
  ExitCode code = ExitCode::done;
  std::string message;
  try {
    f();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    mine = std::current_exception();
    const auto* error = dynamic_cast<const Error*>(&e);
    code = error ? error->code() : ExitCode::bug;
    message = e.what();
  }
  if (largest(c, s, mine ? 1 : 0) == 0) return;
  const std::vector<std::string> all = gather_texts(c, s, mine ? static_cast<char>(code) + message : std::string());
  if (mine) std::rethrow_exception(mine);
  for (size_t k = 0; k < all.size(); ++k)
    if (!all[k].empty()) throw Error(static_cast<ExitCode>(all[k][0]), fmt::format("rank {}: {}", k, all[k].substr(1)));
}

}  // namespace chiron
