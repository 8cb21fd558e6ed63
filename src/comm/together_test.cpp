#include "comm/together.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/comm_testing.h"
#include "comm/thread_ranks.h"

namespace chiron {
namespace {

TEST(Together, NumbersAndTextsGoRound) {
  for (const int n : {1, 2, 3})
    run_thread_ranks(n, [&](Communicator& c) {
      TestRank t;
      EXPECT_EQ(largest(c, t.s, 10 - c.rank()), 10);
      EXPECT_EQ(largest(c, t.s, c.rank()), n - 1);
      const auto texts = gather_texts(c, t.s, std::string(static_cast<size_t>(c.rank()), 'x'));
      ASSERT_EQ(texts.size(), static_cast<size_t>(n));
      for (size_t k = 0; k < texts.size(); ++k) EXPECT_EQ(texts[k], std::string(k, 'x'));
      EXPECT_EQ(gather_texts(c, t.s, "").size(), static_cast<size_t>(n));
    });
}

TEST(Together, AllFailForTheSameReason) {
  for (const int failing : {0, 1, 2})
    run_thread_ranks(3, [&](Communicator& c) {
      TestRank t;
      auto f = [&] {
        if (c.rank() == failing) throw IoError("cannot write a.txt");
      };
      int code = 0;
      std::string message;
      try {
        together(c, t.s, f);
      } catch (const Error& e) {
        code = static_cast<int>(e.code());
        message = e.what();
        EXPECT_EQ(dynamic_cast<const IoError*>(&e) != nullptr, c.rank() == failing) << "there as it is";
      }
      EXPECT_EQ(code, 4);
      EXPECT_EQ(message, (c.rank() == failing ? "" : fmt::format("rank {}: ", failing)) + "cannot write a.txt");
      int done = 0;
      together(c, t.s, [&] { done = 1; });  // and the group goes on
      EXPECT_EQ(done, 1);
    });
}

TEST(Together, WhatIsNoErrorOfOursIsABug) {
  run_thread_ranks(2, [&](Communicator& c) {
    TestRank t;
    try {
      together(c, t.s, [&] {
        if (c.rank() == 0) throw std::runtime_error("odd");
      });
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(c.rank(), 1);
      EXPECT_EQ(e.code(), ExitCode::bug);
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(c.rank(), 0);
    }
  });
}

}  // namespace
}  // namespace chiron
