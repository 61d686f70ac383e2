#include "base/net/base64url.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(Base64Url, DecodesWhatItEncoded) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(base64url_decoded(base64url_encoded(bytes)), bytes) << i;
    bytes += static_cast<char>(i * 7);
  }
  // RFC 7515, appendix C.
  EXPECT_EQ(base64url_encoded("\x03\xec\xff\xe0\xc1"), "A-z_4ME");
}

TEST(Base64Url, RefusesEveryOtherSpelling) {
  for (const char* text :
       {"A", "AAAAA", "AA==", "AAA=", "AA=", "=", "A+", "A/", "A A", "AA\n", "AB", "AAB", "A-z_4MF"})
    EXPECT_EQ(base64url_decoded(text), std::nullopt) << text;
  EXPECT_EQ(base64url_decoded(std::string_view("A\0", 2)), std::nullopt);
  EXPECT_EQ(base64url_decoded("A\xc3"), std::nullopt);
  EXPECT_EQ(base64url_decoded(""), "");
  EXPECT_EQ(base64url_decoded("AA"), std::string(1, '\0'));
}

}  // namespace
}  // namespace gpusched
