#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

TEST(Utf8, WholeCharactersAreText) {
  for (const char* const text :
       {"", "plain ASCII, longer than eight bytes", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
        "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF",
        "eight bytes then \xC3\xBC and eight more"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
}

TEST(Utf8, BrokenCharactersAreNone) {
  for (const char* const text : {"\xFF",
                                 "\xFE",
                                 "\x80",
                                 "\xBF",
                                 "\xC0\x80",
                                 "\xC1\xBF",
                                 "\xC3",
                                 "\xC3(",
                                 "\xE0\x80\x80",
                                 "\xE0\x9F\xBF",
                                 "\xE2\x82",
                                 "\xE2(\xA1",
                                 "\xED\xA0\x80",
                                 "\xED\xBF\xBF",
                                 "\xF0\x80\x80\x80",
                                 "\xF0\x8F\xBF\xBF",
                                 "\xF0\x9F\x98",
                                 "\xF4\x90\x80\x80",
                                 "\xF5\x80\x80\x80",
                                 "\xF8\x88\x80\x80\x80",
                                 "eight bytes then \xFF and eight more"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

TEST(Utf8, ThePrefixEndsBeforeTheFirstByteThatIsNone) {
  EXPECT_EQ(utf8_prefix_bytes("12345678\xC3\xBC\xFF tail"), 10u);
  EXPECT_EQ(utf8_prefix_bytes("\xE2\x82"), 0u);
}

TEST(Utf8, WhatIsNoneIsReplacedByteByByte) {
  EXPECT_EQ(utf8_cleaned("ok \xC3\xBC"), "ok \xC3\xBC");
  EXPECT_EQ(utf8_cleaned("\xFFz\xE2\x82"), "?z??");
}

TEST(Utf8, ACutLeavesNoPartOfACharacter) {
  EXPECT_EQ(utf8_cut("abc", 3), "abc");
  EXPECT_EQ(utf8_cut("abcd", 3), "abc");
  EXPECT_EQ(utf8_cut("ab\xC3\xBC", 3), "ab");
  EXPECT_EQ(utf8_cut("a\xF0\x9F\x98\x80", 4), "a");
  EXPECT_EQ(utf8_cut("a\xF0\x9F\x98\x80z", 5), "a\xF0\x9F\x98\x80");
  EXPECT_EQ(utf8_cut("\xF0\x9F\x98\x80", 1), "");
}

}  // namespace
}  // namespace gpusched
