#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>

namespace gpusched {
namespace {

TEST(Crc32c, MatchesThePublishedCheckValue) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(digits.data(), digits.size()), 0xE3069283u);
}

TEST(Crc32c, ChainingEqualsTheWhole) {
  const std::string_view text = "a group of commands that waited together";
  const uint32_t head = crc32c(text.data(), 13);
  EXPECT_EQ(crc32c(text.data() + 13, text.size() - 13, head), crc32c(text.data(), text.size()));
}

}  // namespace
}  // namespace gpusched
