#include "anticipate/plain_text.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace gpusched::anticipate {
namespace {

TEST(PlainText, HasNoEscapesAndNoControls) {
  EXPECT_EQ(plain_text("\x1b[31mred\x1b[0m", 100), "red");
  EXPECT_EQ(plain_text("\x1b]0;a title\x07text", 100), "text");
  EXPECT_EQ(plain_text("\x1b]8;;http://x\x1b\\link", 100), "link");
  EXPECT_EQ(plain_text("\x1bPdevice\x1b\\text", 100), "text");
  EXPECT_EQ(plain_text("a\x1b[", 100), "a");
  EXPECT_EQ(plain_text(std::string("a\0b\x7f\x08"
                                   "c",
                                   6),
                       100),
            "abc");
  EXPECT_EQ(plain_text("10%\r20%\tx\ny", 100), "10% 20% x\ny");
  EXPECT_EQ(plain_text("a\xc2\x9b"
                       "31mb",
                       100),
            "a31mb");  // CSI in one character.
  EXPECT_EQ(plain_text("a\xe2\x80\xae"
                       "b\xe2\x80\x8b"
                       "c",
                       100),
            "abc");  // Direction, zero width.
}

TEST(PlainText, IsUtf8AndNotLongerThanAsked) {
  EXPECT_EQ(plain_text("caf\xe9 caf\xc3\xa9", 100), "caf? caf\xc3\xa9");
  EXPECT_EQ(plain_text("\xc3\xa9\xc3\xa9", 3), "\xc3\xa9");
  const std::string hostile = std::string(1'000'000, '\xff') + std::string(1'000'000, '\x1b');
  EXPECT_EQ(plain_text(hostile, 4'096).size(), 4'096U);
  EXPECT_TRUE(is_utf8(plain_text(hostile, 4'096)));
}

TEST(LineSplitter, JoinsPiecesAndKeepsTheBeginningOfLongLines) {
  LineSplitter splitter;
  EXPECT_TRUE(splitter.feed("he").empty());
  EXPECT_EQ(splitter.feed("llo\n\nwor"), std::vector<std::string>{"hello"});
  EXPECT_EQ(splitter.feed("ld\nx\n"), (std::vector<std::string>{"world", "x"}));
  constexpr int kPieces = 1'000;
  const std::string piece(1'000'000, 'a');
  for (int at = 0; at < kPieces; ++at) EXPECT_TRUE(splitter.feed(piece).empty());  // One line of a gigabyte.
  const std::vector<std::string> lines = splitter.feed("\nnext\n");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], std::string(kLineBytesMax, 'a'));
  EXPECT_EQ(lines[1], "next");
  EXPECT_EQ(splitter.dropped_bytes(), uint64_t{kPieces} * piece.size() - kLineBytesMax);
}

}  // namespace
}  // namespace gpusched::anticipate
