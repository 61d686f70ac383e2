#include "consensus/core/peer_message.h"

#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"

namespace gpusched::consensus {
namespace {

Members three() {
  return {.voters = {1, 2, 3},
          .learners = {4},
          .stores = {{.id = 1, .store = 11},
                     {.id = 2, .store = 12},
                     {.id = 3, .store = 13},
                     {.id = 4, .store = 14}},
          .id_max = 4};
}

PeerFrame append_frame() {
  PeerFrame frame{.cluster = 77, .from_store = 11, .to_store = 12};
  frame.message = {.kind = MessageKind::kAppend,
                   .to = 2,
                   .from = 1,
                   .term = 5,
                   .log_term = 4,
                   .index = 900,
                   .commit = 880,
                   .reject = false,
                   .context = "context"};
  frame.message.entries = {
      {.index = 901, .term = 5, .data = "group"},
      {.index = 902, .term = 5, .data = std::string("\0\xff", 2)},
      {.index = 903, .term = 5, .kind = EntryKind::kMembers, .data = std::string("\1\0", 2)}};
  return frame;
}

PeerFrame snapshot_frame() {
  PeerFrame frame{.cluster = 77, .from_store = 11, .to_store = 14};
  frame.message = {.kind = MessageKind::kSnapshot, .to = 4, .from = 1, .term = 5};
  frame.message.snapshot = {.index = 900, .term = 4, .members = three(), .data = "digest"};
  return frame;
}

TEST(PeerFrame, ComesBackAsItWas) {
  for (const PeerFrame& frame : {append_frame(), snapshot_frame()}) {
    const Result<PeerFrame> read = decode_frame(encode_frame(frame));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, frame);
  }
}

TEST(PeerFrame, CutShortOrLongerItIsRefused) {
  for (const PeerFrame& frame : {append_frame(), snapshot_frame()}) {
    const std::string bytes = encode_frame(frame);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode_frame(std::string_view(bytes).substr(0, size)).ok()) << size;
    }
    EXPECT_FALSE(decode_frame(bytes + '\0').ok());
  }
}

TEST(PeerFrame, ChangedBytesAreReadOrRefusedAndNothingElse) {
  Prng draw(1);
  const std::string whole = encode_frame(snapshot_frame());
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    for (uint64_t i = 0; i <= draw.below(3); ++i) {
      bytes[draw.below(bytes.size())] = static_cast<char>(draw.below(256));
    }
    const Result<PeerFrame> read = decode_frame(bytes);
    if (!read) {
      ++refused;
      continue;
    }
    const Result<PeerFrame> again = decode_frame(encode_frame(*read));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, *read);
  }
  EXPECT_GT(refused, 1'000);
}

TEST(PeerFrame, OfANewerVersionItSaysSo) {
  std::string bytes = encode_frame(append_frame());
  bytes[0] = 2;
  const Result<PeerFrame> read = decode_frame(bytes);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kVersion);
}

TEST(PeerFrame, WithAMemberWithoutADiskItIsRefused) {
  PeerFrame frame = snapshot_frame();
  frame.message.snapshot->members.stores.pop_back();
  EXPECT_FALSE(decode_frame(encode_frame(frame)).ok());
}

}  // namespace
}  // namespace gpusched::consensus
