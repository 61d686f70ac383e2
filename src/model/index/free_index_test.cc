#include "model/index/free_index.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(FreeIndex, ANodeStandsInOneBucketOfItsClass) {
  FreeIndex index;
  index.put(70, 0, 8);
  index.put(70, 0, 3);
  EXPECT_FALSE(index.bucket(0, 8).test(70));
  EXPECT_TRUE(index.bucket(0, 3).test(70));
  index.remove(70, 0);
  EXPECT_FALSE(index.bucket(0, 3).test(70));
}

TEST(Bitmap, NextSkipsTheExcepted) {
  Bitmap all;
  Bitmap except;
  for (const uint32_t i : {1u, 64u, 130u}) all.set(i);
  except.set(64);
  EXPECT_EQ(all.next_not_in(except, 0), 1u);
  EXPECT_EQ(all.next_not_in(except, 2), 130u);
  EXPECT_EQ(all.next_not_in(except, 131), Bitmap::kNone);
}

TEST(FreeIndex, KnowsTheLargestNumberThatIsFreeNow) {
  FreeIndex index;
  EXPECT_EQ(index.free_max(0), 0u);
  index.put(1, 0, 8);
  index.put(2, 0, 3);
  EXPECT_EQ(index.free_max(0), 8u);
  index.put(1, 0, 0);
  EXPECT_EQ(index.free_max(0), 3u);
  index.remove(2, 0);
  EXPECT_EQ(index.free_max(0), 0u);
}

TEST(Bitmap, NextFindsWhatIsFarAway) {
  Bitmap all;
  const Bitmap none;
  all.set(100'000);
  all.set(5'000);
  EXPECT_EQ(all.next_not_in(none, 0), 5'000u);
  EXPECT_EQ(all.next_not_in(none, 5'001), 100'000u);
  all.clear(100'000);
  EXPECT_EQ(all.next_not_in(none, 5'001), Bitmap::kNone);
  all.clear(5'000);
  EXPECT_TRUE(all.empty());
}

}  // namespace
}  // namespace gpusched
