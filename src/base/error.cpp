#include "base/error.h"

#include <string_view>

namespace chiron {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::string_view path(file);
  if (auto at = path.rfind("src/"); at != std::string_view::npos) path.remove_prefix(at);
  throw Bug("{}:{}: {} does not hold{}{}", path, line, condition, message.empty() ? "" : ": ", message);
}

}  // namespace chiron
