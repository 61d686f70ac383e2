#include "peers/link_frame.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace gpusched::peers {
namespace {

TEST(LinkFrame, ComesPieceByPiece) {
  const std::string bytes = link_frame(FrameKind::kMessage, "abc") + link_frame(FrameKind::kAlive);
  for (std::size_t size = 0; size < kHeadBytes + 3; ++size) {
    std::string_view part = std::string_view(bytes).substr(0, size);
    const auto taken = take_link_frame(part, 3);
    ASSERT_TRUE(taken.ok());
    EXPECT_FALSE(taken->has_value()) << size;
    EXPECT_EQ(part.size(), size);
  }
  std::string_view rest = bytes;
  const auto first = take_link_frame(rest, 3);
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->kind, FrameKind::kMessage);
  EXPECT_EQ((*first)->content, "abc");
  const auto second = take_link_frame(rest, 3);
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->kind, FrameKind::kAlive);
  EXPECT_TRUE(rest.empty());
}

TEST(LinkFrame, RefusesTooLargeOnesByTheirHeadAlone) {
  std::string_view bytes = "\xFF\xFF\xFF\x7F\x04";
  const auto taken = take_link_frame(bytes, kContentBytesMax);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kTooLarge);
  std::string_view web = "GET / HTTP/1.1\r\n";
  EXPECT_EQ(take_link_frame(web, kContentBytesMax).error().code, ErrorCode::kInvalidArgument);
}

TEST(LinkFrame, AnotherVersionIsRefusedWithWhatToDo) {
  std::string_view bytes;
  const std::string own = hello();
  bytes = own;
  const auto taken = take_link_frame(bytes, kFirstBytesMax);
  ASSERT_TRUE(taken.ok() && taken->has_value());
  EXPECT_TRUE(check_hello((*taken)->content).ok());
  EXPECT_EQ(check_hello("\x02").error().code, ErrorCode::kVersion);
  EXPECT_EQ(check_hello("").error().code, ErrorCode::kInvalidArgument);
}

TEST(LinkFrame, FactsAreReadBackAndBadOnesRefused) {
  const PeerFacts facts{.version = "0.1.0",
                        .http = 8080,
                        .grpc = 65'535,
                        .tasks_grpc = 1,
                        .tasks_http = 0,
                        .allocation = 8'000,
                        .metrics = 9'091,
                        .https = true};
  const std::string bytes = encode_facts(facts);
  const Result<PeerFacts> read = decode_facts(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, facts);
  EXPECT_EQ(*decode_facts(bytes + "later"), facts);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_facts(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(
      decode_facts(std::string("\x00\x80\x80\x04\x00\x00\x00\x00\x00\x00", 10)).ok());  // Port 65536.
}

TEST(LinkFrame, RandomBytesAreNeverReadBeyondTheirEnd) {
  Prng draw(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(draw.below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(draw.below(256));
    std::string_view rest = bytes;
    const auto taken = take_link_frame(rest, 32);
    if (taken.ok() && taken->has_value()) {
      EXPECT_LE((*taken)->content.size(), bytes.size() - kHeadBytes);
    }
    (void)decode_facts(bytes);
    (void)check_hello(bytes);
  }
}

}  // namespace
}  // namespace gpusched::peers
