#include "host/core/shared_room.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpusched {
namespace {

/// Takes one at a time until nothing fits; how much that was.
std::size_t take_all(SharedRoom<uint64_t>& share, uint64_t key) {
  std::size_t taken = 0;
  for (; share.fits(key, 1); ++taken) share.take(key, 1);
  return taken;
}

TEST(SharedRoom, OneAloneGetsHalfAndEachNewcomerHalfOfWhatIsLeft) {
  SharedRoom<uint64_t> share(1'200);
  EXPECT_EQ(take_all(share, 1), 600u);
  EXPECT_EQ(take_all(share, 2), 300u);
  EXPECT_EQ(take_all(share, 3), 150u);
  EXPECT_EQ(take_all(share, 1), 0u);
  EXPECT_EQ(share.used(), 1'050u);
}

TEST(SharedRoom, WhoeverHasNothingFindsSomethingWhileOthersAskForAll) {
  SharedRoom<uint64_t> share(10'000);
  // They ask in turns, until none gets any more.
  for (bool more = true; more;) {
    more = false;
    for (uint64_t key = 1; key <= 20; ++key) {
      if (!share.fits(key, 1)) continue;
      share.take(key, 1);
      more = true;
    }
  }
  for (uint64_t key = 1; key <= 20; ++key) EXPECT_EQ(share.held(key) / 10, 47u);  // One part of 21.
  EXPECT_GT(take_all(share, 99), 200u);
}

TEST(SharedRoom, WhatIsGivenBackIsThereAgainAndNobodyIsRemembered) {
  SharedRoom<uint64_t> share(100);
  share.take(7, 50);
  EXPECT_FALSE(share.fits(7, 1));
  share.give_back(7, 20);
  EXPECT_TRUE(share.fits(7, 10));
  EXPECT_FALSE(share.fits(7, 21));
  share.give_back(7, 30);
  EXPECT_EQ(share.holders(), 0u);
  EXPECT_EQ(share.used(), 0u);
}

TEST(SharedRoom, RoomThatIsKeptForSomeIsNotOthers) {
  SharedRoom<uint64_t> share(100);
  share.take(1, 40);
  share.take(2, 30);
  EXPECT_FALSE(share.fits_in(80, 3, 6));
  EXPECT_TRUE(share.fits_in(80, 3, 5));
  EXPECT_TRUE(share.fits(3, 15));
  EXPECT_FALSE(share.fits(3, 101));
  share.set_room(60);
  EXPECT_FALSE(share.fits(3, 1));
}

}  // namespace
}  // namespace gpusched
