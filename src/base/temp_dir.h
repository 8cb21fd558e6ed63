#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/files.h"

namespace chiron {

/// A new, empty directory under the system's temporary folder, removed with all it holds at the end. For tests.
class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "chiron-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) throw_io_error("create the directory", path_, errno);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  /// A path in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace chiron
