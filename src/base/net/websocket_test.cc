#include "base/net/websocket.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace gpusched::websocket {
namespace {

using Status = Parser::Status;

struct Seen {
  Opcode opcode;
  std::string data;
  friend bool operator==(const Seen&, const Seen&) = default;
};

/// Everything that the parser takes out of `bytes`, handed over in pieces of `step`; stops at what is bad.
std::vector<Seen> parse(Parser& parser, std::string_view bytes, std::size_t step, Status* last = nullptr) {
  std::vector<Seen> seen;
  while (!bytes.empty()) {
    std::size_t used = 0;
    const std::string_view piece = bytes.substr(0, step);
    const Status status = parser.put(piece, used);
    if (last != nullptr) *last = status;
    EXPECT_LE(used, piece.size());
    if (status == Status::kBad) return seen;
    if (status == Status::kMessage) seen.push_back({parser.opcode(), parser.data()});
    if (status == Status::kNeedMore) {
      EXPECT_EQ(used, piece.size());
    }
    bytes.remove_prefix(used);
  }
  return seen;
}

std::string fragment(uint8_t first, std::string_view data) {
  std::string frame = encode_frame(Opcode::kText, data);
  frame[0] = static_cast<char>(first);
  return frame;
}

TEST(WebSocket, AcceptKeyIsTheOneOfTheRfc) {
  EXPECT_EQ(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST(WebSocket, KeysOfSixteenBytesAreKeys) {
  EXPECT_TRUE(is_client_key("dGhlIHNhbXBsZSBub25jZQ=="));
  EXPECT_FALSE(is_client_key(""));
  EXPECT_FALSE(is_client_key("dGhlIHNhbXBsZSBub25jZQ="));
  EXPECT_FALSE(is_client_key("dGhlIHNhbXBsZSBub25j ZQ=="));
}

TEST(WebSocket, Base64PadsAsItShould) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
}

TEST(WebSocket, FramesOfAllLengthsComeBackInPiecesOfAnySize) {
  for (const std::size_t size : {0, 1, 125, 126, 127, 65'535, 65'536, 100'000}) {
    std::string data(size, '\0');
    for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 7);
    for (const bool masked : {false, true}) {
      const std::optional<uint32_t> mask = masked ? std::optional<uint32_t>(0x12345678) : std::nullopt;
      const std::string frames =
          encode_frame(Opcode::kBinary, data, mask) + encode_frame(Opcode::kText, "next", mask);
      for (const std::size_t step : {std::size_t{1}, std::size_t{7}, frames.size()}) {
        if (step == 1 && size > 1'000) continue;
        Parser parser(masked, 1 << 20);
        EXPECT_EQ(parse(parser, frames, step),
                  (std::vector<Seen>{{Opcode::kBinary, data}, {Opcode::kText, "next"}}));
      }
    }
  }
}

TEST(WebSocket, TheRfcsMaskedHelloIsRead) {
  const std::string frame = "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
  Parser parser(true, 100);
  EXPECT_EQ(parse(parser, frame, frame.size()), (std::vector<Seen>{{Opcode::kText, "Hello"}}));
  EXPECT_EQ(encode_frame(Opcode::kText, "Hello", 0x37fa213d), frame);
}

TEST(WebSocket, ControlFramesMayStandBetweenFragments) {
  const std::string bytes = fragment(0x01, "Hel") + encode_frame(Opcode::kPing, "are you there") +
                            fragment(0x00, "l") + fragment(0x80, "o");
  Parser parser(false, 100);
  EXPECT_EQ(parse(parser, bytes, 2),
            (std::vector<Seen>{{Opcode::kPing, "are you there"}, {Opcode::kText, "Hello"}}));
}

TEST(WebSocket, WhatBreaksTheRulesIsBadAtOnceAndForEver) {
  struct Case {
    std::string bytes;
    bool masked;
    uint16_t code;
  };
  const std::vector<Case> cases = {
      {fragment(0xC1, "x"), false, kProtocolError},                        // A reserved bit.
      {fragment(0x83, "x"), false, kProtocolError},                        // An unknown data frame.
      {fragment(0x8B, "x"), false, kProtocolError},                        // An unknown control frame.
      {encode_frame(Opcode::kText, "x"), true, kProtocolError},            // A client's, not masked.
      {encode_frame(Opcode::kText, "x", 1), false, kProtocolError},        // A server's, masked.
      {fragment(0x09, "x"), false, kProtocolError},                        // A ping in pieces.
      {std::string("\x89\x7e\x00\x7e", 4), false, kProtocolError},         // A ping of 126 bytes.
      {fragment(0x80, "x"), false, kProtocolError},                        // The end of nothing.
      {fragment(0x01, "x") + fragment(0x81, "y"), false, kProtocolError},  // A message in another.
      {std::string("\x82\x7e\x00\x7d", 4), false, kProtocolError},         // 125 in the long form.
      {std::string("\x82\x7f\0\0\0\0\0\0\xff\xff", 10), false, kProtocolError},
      {fragment(0x88, "x"), false, kProtocolError},  // Half a code.
      {encode_frame(Opcode::kText, std::string(101, 'x')), false, kMessageTooBig},
      {fragment(0x01, std::string(60, 'x')) + fragment(0x80, std::string(60, 'x')), false, kMessageTooBig},
      {std::string("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10), false, kMessageTooBig},
  };
  for (const Case& wrong : cases) {
    for (const std::size_t step : {std::size_t{1}, wrong.bytes.size()}) {
      Parser parser(wrong.masked, 100);
      Status last = Status::kNeedMore;
      parse(parser, wrong.bytes, step, &last);
      EXPECT_EQ(last, Status::kBad) << testing::PrintToString(wrong.bytes);
      EXPECT_EQ(parser.close_code(), wrong.code) << testing::PrintToString(wrong.bytes);
      std::size_t used = 0;
      EXPECT_EQ(parser.put("\x81", used), Status::kBad);
    }
  }
}

TEST(WebSocket, ClosePayloadsFitIntoAControlFrame) {
  const std::string payload = close_payload(kGoingAway, std::string(500, 'r'));
  EXPECT_EQ(payload.size(), 125u);
  EXPECT_EQ(payload.substr(0, 2), "\x03\xe9");
  EXPECT_EQ(encode_frame(Opcode::kClose, payload).size(), 127u);
}

// Random bytes, and frames with single bits turned: whatever comes, the parser stays within its bounds, never
// gives more than it may, and says the same however the bytes are cut.
TEST(WebSocket, DamagedAndRandomBytesAreTakenTheSameInAnyPieces) {
  Prng prng(20'240'229);
  constexpr std::size_t kBytesMax = 300;
  for (int round = 0; round < 3'000; ++round) {
    std::string bytes;
    const int frames = static_cast<int>(prng.between(1, 4));
    for (int i = 0; i < frames; ++i) {
      const auto size = static_cast<std::size_t>(prng.between(0, 200));
      std::string data;
      for (std::size_t k = 0; k < size; ++k) data.push_back(static_cast<char>(prng.between(0, 255)));
      if (round % 3 == 0) {
        bytes += data;
      } else {
        const bool control = prng.between(0, 3) == 0;
        const Opcode opcode = control ? Opcode::kPing : Opcode::kBinary;
        bytes += encode_frame(opcode, control ? data.substr(0, 125) : data,
                              static_cast<uint32_t>(prng.between(0, UINT32_MAX)));
      }
    }
    if (round % 3 == 1 && !bytes.empty()) {
      const auto at = static_cast<std::size_t>(prng.between(0, static_cast<int64_t>(bytes.size()) - 1));
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << prng.between(0, 7)));
    }
    Parser whole(true, kBytesMax);
    Parser single(true, kBytesMax);
    Status last_whole = Status::kNeedMore;
    Status last_single = Status::kNeedMore;
    const std::vector<Seen> in_one = parse(whole, bytes, bytes.size() + 1, &last_whole);
    EXPECT_EQ(in_one, parse(single, bytes, 1, &last_single));
    EXPECT_EQ(last_whole == Status::kBad, last_single == Status::kBad);
    for (const Seen& seen : in_one) EXPECT_LE(seen.data.size(), kBytesMax);
  }
}

}  // namespace
}  // namespace gpusched::websocket
