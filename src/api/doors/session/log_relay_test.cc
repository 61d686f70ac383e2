#include "api/doors/session/log_relay.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

constexpr Time kNow{1'800'000'000'000'000'000};

TEST(LogRelay, TextIsTextAndOtherBytesAreBase64) {
  LogPiece piece{.data = "a\n\"b\"", .offset = 7, .next_offset = 12, .attempt = 2};
  EXPECT_EQ(
      log_piece_json(piece, false, false),
      "{\"attempt\":2,\"stream\":\"stdout\",\"offset\":7,\"next_offset\":12,\"text\":\"a\\n\\\"b\\\"\"}\n");
  LogPiece bytes{.data = "\xff\xfe-", .next_offset = 3, .skipped = 9, .attempt = 1};
  EXPECT_EQ(log_piece_json(bytes, true, false),
            "{\"attempt\":1,\"stream\":\"stderr\",\"offset\":0,\"next_offset\":3,\"skipped\":9,\"base64\":\"/"
            "/4t\"}\n");
}

TEST(LogRelay, ACharacterThatAPieceCutsGoesToTheNextPiece) {
  LogPiece piece{.data = "gr\xc3\xbc\xc3", .offset = 10, .next_offset = 15, .attempt = 1};
  const std::string line = log_piece_json(piece, false, false);
  EXPECT_EQ(piece.next_offset, 14);
  EXPECT_NE(line.find("\"text\":\"gr\xc3\xbc\""), std::string::npos) << line;
  LogPiece alone{.data = "\xc3", .offset = 14, .next_offset = 15, .attempt = 1};
  EXPECT_NE(log_piece_json(alone, false, false).find("base64"), std::string::npos);
  EXPECT_EQ(alone.next_offset, 15);
}

TEST(LogRelay, TheNextPieceFollowsAndAnEndIsOne) {
  LogRequest request{.tail_lines = 5, .since = kNow, .grep = "x"};
  LogPiece piece{.data = "abc", .offset = 4, .next_offset = 70, .attempt = 3};
  EXPECT_FALSE(is_end(piece, false));
  request.go_on(piece);
  EXPECT_EQ(request.offset, 70);
  EXPECT_EQ(request.attempt, 3u);
  EXPECT_EQ(request.tail_lines, 0);
  EXPECT_FALSE(request.since.valid());
  EXPECT_EQ(request.grep, "x");
  const LogPiece nothing{.offset = 70, .next_offset = 70, .attempt = 3};
  EXPECT_TRUE(is_end(nothing, false));
  EXPECT_FALSE(is_end(nothing, true));
  const LogPiece searched{.offset = 70, .next_offset = 90, .attempt = 3};
  EXPECT_FALSE(is_end(searched, false));
  const LogPiece end{.offset = 90, .next_offset = 90, .at_end = true, .attempt = 3};
  EXPECT_TRUE(is_end(end, true));
}

TEST(LogRelay, TextsThatAreNoLineAreRefused) {
  EXPECT_FALSE(check_log_request({.grep = "loss"}).has_value());
  EXPECT_EQ(check_log_request({.grep = "a\nb"})->field, "grep");
  EXPECT_EQ(check_log_request({.grep = std::string(2'000, 'x')})->field, "grep");
  EXPECT_EQ(check_log_request({.offset = -1})->field, "offset");
}

}  // namespace
}  // namespace gpusched::api
