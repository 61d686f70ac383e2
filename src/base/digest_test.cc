#include "base/digest.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(Digest, OrderMatters) {
  Digest ab;
  ab.mix(1);
  ab.mix(2);
  Digest ba;
  ba.mix(2);
  ba.mix(1);
  EXPECT_NE(ab, ba);
}

TEST(Digest, ValueIsFixedForever) {
  Digest digest;
  digest.mix(42);
  digest.mix(std::string_view("a job named train-7b"));
  EXPECT_EQ(digest.value(), 9462390979775910244ULL);
}

TEST(Digest, SplitOfBytesMatters) {
  Digest one;
  one.mix(std::string_view("ab"));
  one.mix(std::string_view("c"));
  Digest other;
  other.mix(std::string_view("a"));
  other.mix(std::string_view("bc"));
  EXPECT_NE(one, other);
}

}  // namespace
}  // namespace gpusched
