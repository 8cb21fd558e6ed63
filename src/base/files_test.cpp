#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temp_dir.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Runs f in a child process; returns its wait status.
int in_child(const std::function<void()>& f) {
  pid_t pid = fork();
  if (pid == 0) {
    try {
      f();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

struct Files : testing::Test {
  TempDir dir;
  void TearDown() override { set_file_faults({}); }
};

TEST_F(Files, WriteFileReplacesAsAWhole) {
  write_file(dir / "a", "first");
  EXPECT_EQ(read_file(dir / "a"), "first");
  write_file(dir / "a", "");
  EXPECT_EQ(read_file(dir / "a"), "");
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("a"));
}

TEST_F(Files, WriterModes) {
  Hasher hasher;
  FileWriter create(dir / "log", FileWriter::Mode::create, &hasher);
  create.write("one\n");
  EXPECT_EQ(read_file(dir / "log"), "") << "buffered";
  create.flush();
  EXPECT_EQ(read_file(dir / "log"), "one\n");
  create.write("two\n");
  create.close();
  EXPECT_EQ(create.size(), 8);
  EXPECT_EQ(hasher.digest(), hash128("one\ntwo\n"));

  FileWriter append(dir / "log", FileWriter::Mode::append);
  append.write("three\n");
  append.close();
  EXPECT_EQ(read_file(dir / "log"), "one\ntwo\nthree\n");

  {
    FileWriter replace(dir / "log", FileWriter::Mode::replace);
    replace.write("gone");
    replace.flush();
  }
  EXPECT_EQ(read_file(dir / "log"), "one\ntwo\nthree\n") << "a replace that was not closed changes nothing";
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("log"));
  EXPECT_THROW(append.write("x"), Bug);
}

TEST_F(Files, LargeWritesKeepTheirOrder) {
  std::string expected;
  FileWriter writer(dir / "big");
  for (int i = 0; i < 40; ++i) {
    std::string piece(static_cast<size_t>(1 + i * i * 2000), static_cast<char>('a' + i % 26));
    writer.write(piece);
    expected += piece;
  }
  writer.close();
  EXPECT_TRUE(read_file(dir / "big") == expected);
  EXPECT_EQ(writer.size(), static_cast<int64_t>(expected.size()));
}

TEST_F(Files, ErrorsNameFileActionAndReason) {
  EXPECT_THAT(message_of<IoError>([&] { read_file(dir / "none"); }),
              AllOf(HasSubstr("cannot open"), HasSubstr("/none"), HasSubstr("No such file")));
  EXPECT_THAT(message_of<IoError>([&] { read_file(dir.path()); }), HasSubstr("directory"));
  EXPECT_THAT(message_of<IoError>([&] { write_file(dir / "no/such", "x"); }),
              AllOf(HasSubstr("no/such"), HasSubstr("No such file")));
  write_file(dir / "file", "12345");
  EXPECT_THAT(message_of<IoError>([&] { read_file(dir / "file", 4); }),
              AllOf(HasSubstr("/file"), HasSubstr("4 bytes")));
  EXPECT_THAT(message_of<IoError>([&] { make_directories(dir / "file/sub"); }), HasSubstr("/file"));
  EXPECT_THAT(message_of<IoError>([&] { list_directory(dir / "none"); }), HasSubstr("/none"));
  EXPECT_THAT(message_of<IoError>([&] { rename_path(dir / "none", dir / "b"); }), HasSubstr("/none"));
}

TEST_F(Files, DirectoriesAndTrees) {
  make_directories(dir / "a/b/c");
  make_directories(dir / "a/b/c");
  write_file(dir / "a/b/x", "1");
  write_file(dir / "kept", "1");
  ASSERT_EQ(symlink((dir / "kept").c_str(), (dir / "a/link").c_str()), 0);
  EXPECT_TRUE(directory_exists(dir / "a/b"));
  EXPECT_TRUE(file_exists(dir / "a/b/x"));
  EXPECT_FALSE(file_exists(dir / "a/b"));
  rename_path(dir / "a", dir / "z");
  fsync_directory(dir.path());
  EXPECT_THAT(list_directory(dir / "z"), ElementsAre("b", "link"));
  remove_tree(dir / "z");
  remove_tree(dir / "z");
  remove_file(dir / "z");
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("kept"));
  EXPECT_EQ(file_size(dir / "kept"), 1);
}

TEST(FilePaths, Parent) {
  EXPECT_EQ(parent_directory("a/b/c"), "a/b");
  EXPECT_EQ(parent_directory("a/b/c/"), "a/b");
  EXPECT_EQ(parent_directory("a//b"), "a");
  EXPECT_EQ(parent_directory("/a"), "/");
  EXPECT_EQ(parent_directory("/"), "/");
  EXPECT_EQ(parent_directory("a"), ".");
}

TEST_F(Files, AReaderOfAFileThatIsCutShortSaysSo) {
  const std::string path = dir / "a";
  write_file(path, "0123456789");
  FileReader file(path);
  EXPECT_EQ(file.size(), 10);
  char bytes[4] = {};
  file.read(6, bytes, 4);
  EXPECT_EQ(std::string(bytes, 4), "6789");
  ASSERT_EQ(truncate(path.c_str(), 8), 0);
  EXPECT_THAT(message_of<IoError>([&] { file.read(6, bytes, 4); }),
              AllOf(HasSubstr(path), HasSubstr("ends at byte 8, and had at least 10")));
  EXPECT_THAT(message_of<IoError>([&] { file.hash(); }), HasSubstr("ends at byte 8, and had at least 10"));
  file.read(4, bytes, 4);
  EXPECT_THAT(message_of<IoError>([&] { FileReader(dir / "none"); }), HasSubstr(dir / "none"));
  EXPECT_THAT(message_of<IoError>([&] { FileReader(dir.path()); }), HasSubstr("directory"));
}

TEST_F(Files, AReaderHashesAndOutlivesAReplacedFile) {
  const std::string path = dir / "a", text(700'001, 'x');
  write_file(path, text);
  FileReader first(path), file = std::move(first);
  write_file(path, "other");
  EXPECT_EQ(file.hash(), hash128(text));
  EXPECT_EQ(file.hash(700'000), hash128("x"));
  EXPECT_EQ(file.hash(700'001), hash128(""));
  EXPECT_EQ(FileReader(path).hash(), hash128("other"));
}

TEST_F(Files, ExchangedPathsHoldEachOthersContent) {
  make_directories(dir / "a");
  write_file(dir / "a/x", "x");
  make_directories(dir / "b/sub");
  ASSERT_TRUE(exchange_paths(dir / "a", dir / "b"));
  EXPECT_THAT(list_directory(dir / "a"), ElementsAre("sub"));
  EXPECT_EQ(read_file(dir / "b/x"), "x");
  EXPECT_THAT(message_of<IoError>([&] { exchange_paths(dir / "a", dir / "none"); }), HasSubstr(dir / "none"));
  set_file_faults({.fail_at = 1, .error = EINVAL});
  EXPECT_FALSE(exchange_paths(dir / "a", dir / "b")) << "as a file system that cannot";
}

TEST_F(Files, WhatNoRenamedDirectoryCanReplace) {
  make_directories(dir / "real");
  write_file(dir / "file", "");
  std::filesystem::create_symlink(dir / "real", dir / "link");
  std::filesystem::create_symlink("gone/away", dir / "dangling");
  EXPECT_EQ(renamable_directory(dir / "real//"), dir / "real");
  EXPECT_EQ(renamable_directory(dir / "new"), dir / "new");
  EXPECT_EQ(renamable_directory("new"), "new");
  const std::pair<std::string, std::string> refused[] = {
      {dir / "link", "is a link: the folder is renamed into its place at the end, so name it by its own path, " +
                         std::filesystem::canonical(dir / "real").string()},
      {dir / "link/", "is a link"},
      {dir / "dangling", "its own path, gone/away"},
      {dir / "real/.", "is no name"},
      {dir / "real/..", "is no name"},
      {".", std::filesystem::current_path().string()},
      {dir / "file", "is a file"},
      {"", "\"\" is no folder"},
      {"//", "\"//\" is no folder"}};
  for (const auto& [path, message] : refused)
    EXPECT_THAT(message_of<ConfigError>([&] { renamable_directory(path); }), HasSubstr(message)) << path;
}

TEST_F(Files, CrashAtEveryOperationLeavesOldOrNew) {
  std::string path = dir / "a";
  write_file(path, "old");
  set_file_faults({});
  write_file(path, "old");
  int64_t operations = file_operations();
  EXPECT_EQ(operations, 5) << "create, write, fsync, rename, fsync of the folder";
  for (int64_t n = 1; n <= operations; ++n) {
    write_file(path, "old");
    int status = in_child([&] {
      set_file_faults({.crash_at = n});
      write_file(path, "newer");
    });
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << n;
    EXPECT_EQ(read_file(path), n <= 4 ? "old" : "newer") << n;
    // A killed process may leave its temporary file, with half of the bytes if it died in the write.
    for (const std::string& name : list_directory(dir.path())) {
      if (name == "a") continue;
      EXPECT_THAT(name, HasSubstr(".a.tmp-"));
      if (n == 2) {
        EXPECT_EQ(read_file(dir / name), "ne");
      }
      remove_file(dir / name);
    }
  }
  int status = in_child([&] {
    set_file_faults({.crash_at = operations + 1});
    write_file(path, "newer");
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Files, FailureAtEveryOperationIsNamedAndKeepsTheOldFile) {
  std::string path = dir / "a";
  for (int64_t n = 1; n <= 5; ++n) {
    write_file(path, "old");
    set_file_faults({.fail_at = n, .error = n == 3 ? EIO : ENOSPC, .lasting = true});
    EXPECT_THAT(message_of<IoError>([&] { write_file(path, "newer"); }),
                AllOf(HasSubstr(n == 5 ? dir.path() : path), HasSubstr(n == 3 ? "Input/output" : "disk is full")));
    set_file_faults({});
    EXPECT_EQ(read_file(path), n <= 4 ? "old" : "newer");
    EXPECT_THAT(list_directory(dir.path()), ElementsAre("a")) << n;
  }
}

TEST_F(Files, RealFullDevice) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  FileWriter writer("/dev/full", FileWriter::Mode::append);
  writer.write("x");
  EXPECT_THAT(message_of<IoError>([&] { writer.flush(); }), AllOf(HasSubstr("/dev/full"), HasSubstr("disk is full")));
}

TEST_F(Files, UnfinishedOnesAreRemovedAndNothingElse) {
  for (const char* name : {".a.txt.tmp-123", ".tmp-9", "a.txt", ".hidden", "a.tmp-1", ".a.tmp-", ".a.tmp-1x"})
    write_file(dir / name, "x");
  make_directories(dir / ".d.tmp-5");
  remove_unfinished(dir.path());
  EXPECT_THAT(list_directory(dir.path()),
              testing::UnorderedElementsAre("a.txt", ".hidden", "a.tmp-1", ".a.tmp-", ".a.tmp-1x", ".d.tmp-5"));
}

}  // namespace
}  // namespace chiron
