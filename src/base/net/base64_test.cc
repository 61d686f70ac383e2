#include "base/net/base64.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(Base64, IsThatOfTheStandard) {
  // RFC 4648, section 10.
  EXPECT_EQ(base64_encoded(""), "");
  EXPECT_EQ(base64_encoded("f"), "Zg==");
  EXPECT_EQ(base64_encoded("fo"), "Zm8=");
  EXPECT_EQ(base64_encoded("foo"), "Zm9v");
  EXPECT_EQ(base64_encoded("foobar"), "Zm9vYmFy");
}

TEST(Base64, AnyBytesComeBack) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i);
    ASSERT_EQ(base64_decoded(base64_encoded(bytes)), bytes);
  }
}

TEST(Base64, WhatIsNoneIsRefused) {
  for (const char* text : {"Z", "Zg=", "Zg==Zg==", "=g==", "Z===", "Zm9*", "Zh=="}) {
    EXPECT_FALSE(base64_decoded(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace gpusched
