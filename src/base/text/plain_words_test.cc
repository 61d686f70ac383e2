#include "base/text/plain_words.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(PlainWords, LeaveWhatPeopleRead) {
  EXPECT_EQ(plain_words("no such model: caf\xC3\xA9 (\xE2\x82\xAC 3)", 100),
            "no such model: caf\xC3\xA9 (\xE2\x82\xAC 3)");
  EXPECT_EQ(plain_words("\xC2\xA0", 10), "\xC2\xA0");
}

TEST(PlainWords, WriteControlCharactersAsTheyAreInC) {
  EXPECT_EQ(plain_words("a\x1b[31mred\x07", 100), "a\\x1b[31mred\\x07");
  EXPECT_EQ(plain_words("one\ntwo\r\tthree\x7f", 100), "one\\ntwo\\r\\tthree\\x7f");
  EXPECT_EQ(plain_words(std::string_view("z\0z", 3), 100), "z\\x00z");
  EXPECT_EQ(plain_words("\xC2\x9B"
                        "2J",
                        100),
            "\\x9b2J");
  EXPECT_EQ(plain_words("\xFF\x1b", 100), "?\\x1b");
}

TEST(PlainWords, AreNoLongerThanWhatIsAsked) {
  EXPECT_EQ(plain_words("\n\n\n\n", 5), "\\n\\n\\");
  EXPECT_EQ(plain_words("abc\xC3\xA4", 4), "abc");
}

}  // namespace
}  // namespace gpusched
