#include "api/limits/open_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace gpusched::api {
namespace {

class OpenSocketsTest : public ::testing::Test {
 protected:
  ~OpenSocketsTest() override {
    for (const int descriptor : open_) ::close(descriptor);
  }
  int open(OpenSockets& sockets, const std::string& party) {
    open_.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockets.add(party, open_.back());
    return open_.back();
  }
  void close(int descriptor) {
    std::erase(open_, descriptor);
    ::close(descriptor);
  }
  std::vector<int> open_;
  Time now_ = Time{} + hours(1);
};

TEST_F(OpenSocketsTest, APartyHasAsManyAsItMayAndOthersHaveTheirs) {
  OpenSockets sockets({.of_party_max = 2});
  const int first = open(sockets, "eve");
  EXPECT_TRUE(sockets.has_room("eve", now_));
  open(sockets, "eve");
  EXPECT_FALSE(sockets.has_room("eve", now_));
  EXPECT_TRUE(sockets.has_room("ana", now_));
  for (int i = 0; i < 5; ++i) open(sockets, "");  // Nobody's.
  EXPECT_TRUE(sockets.has_room("", now_));
  // Nobody tells of an end: it is seen at the next look, which is not at once.
  close(first);
  EXPECT_FALSE(sockets.has_room("eve", now_));
  now_ = now_ + OpenSockets::kLookEvery;
  EXPECT_TRUE(sockets.has_room("eve", now_));
  EXPECT_EQ(sockets.known_of("eve"), 1U);
}

TEST_F(OpenSocketsTest, ADescriptorThatIsAnothersByNowIsNotTheOldOne) {
  OpenSockets sockets({.of_party_max = 1});
  const int first = open(sockets, "eve");
  close(first);
  // The same descriptor, not added: of something else in this process.
  const int other = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  open_.push_back(other);
  ASSERT_EQ(other, first);
  EXPECT_TRUE(sockets.has_room("eve", now_));
  EXPECT_EQ(sockets.known(), 0U);
  // The same descriptor, added as another party's.
  const int again = open(sockets, "eve");
  close(again);
  ASSERT_EQ(open(sockets, "ana"), again);
  EXPECT_EQ(sockets.known_of("eve"), 0U);
  EXPECT_EQ(sockets.known_of("ana"), 1U);
}

TEST_F(OpenSocketsTest, AllTogetherHaveABound) {
  OpenSockets sockets({.all_max = 3});
  const int first = open(sockets, "a");
  open(sockets, "b");
  open(sockets, "");
  EXPECT_FALSE(sockets.has_room("c", now_));
  close(first);
  EXPECT_FALSE(sockets.has_room("c", now_));
  EXPECT_TRUE(sockets.has_room("c", now_ + OpenSockets::kLookEvery));
}

TEST_F(OpenSocketsTest, WhatHasEndedIsForgottenThoughNobodyIsFull) {
  OpenSockets sockets({.of_party_max = 1'000});
  std::vector<int> many;
  for (int i = 0; i < 200; ++i) many.push_back(open(sockets, "p" + std::to_string(i % 50)));
  for (const int descriptor : many) close(descriptor);
  // Other sockets are opened, so that the new ones do not simply have the descriptors of the old.
  for (int i = 0; i < 200; ++i) open_.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (int i = 0; i < 100; ++i) open(sockets, "late");
  EXPECT_EQ(sockets.known(), 100U);
  EXPECT_EQ(sockets.known_of("late"), 100U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(sockets.known_of("p" + std::to_string(i)), 0U);
}

}  // namespace
}  // namespace gpusched::api
