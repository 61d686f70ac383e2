#include "model/free_index.h"

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

}  // namespace
}  // namespace gpusched
