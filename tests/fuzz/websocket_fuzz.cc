// rooms: base
//
// Frames from any bytes, in pieces of any size: the same bytes give the same messages however they are cut,
// and what is encoded is read as it was.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/net/websocket.h"

namespace ws = gpusched::websocket;

namespace {

constexpr std::size_t kMessageBytesMax = 4'096;

struct Message {
  ws::Opcode opcode = ws::Opcode::kText;
  std::string data;

  friend bool operator==(const Message&, const Message&) = default;
};

struct Seen {
  std::vector<Message> messages;
  uint16_t close_code = 0;

  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen read_all(std::string_view bytes, bool masked, std::size_t piece) {
  ws::Parser parser(masked, kMessageBytesMax);
  Seen seen;
  while (!bytes.empty()) {
    std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    while (!part.empty()) {
      std::size_t used = 0;
      const ws::Parser::Status status = parser.put(part, used);
      CHECK(used <= part.size());
      part.remove_prefix(used);
      if (status == ws::Parser::Status::kNeedMore) {
        CHECK(part.empty());
        continue;
      }
      if (status == ws::Parser::Status::kBad) {
        CHECK(!parser.error().empty());
        CHECK(parser.close_code() == ws::kProtocolError || parser.close_code() == ws::kMessageTooBig);
        seen.close_code = parser.close_code();
        return seen;
      }
      CHECK(parser.data().size() <= kMessageBytesMax);
      CHECK(parser.opcode() != ws::Opcode::kContinuation);
      seen.messages.push_back({.opcode = parser.opcode(), .data = parser.data()});
    }
  }
  return seen;
}

/// The input as a list of messages, encoded as one end would, and read as the other end does.
void try_round_trip(std::string_view input) {
  gpusched::ByteReader in(input);
  const bool masked = (in.u8() & 1) != 0;
  std::string stream;
  std::vector<Message> sent;
  while (in.remaining() > 0 && sent.size() < 50) {
    constexpr ws::Opcode kKinds[] = {ws::Opcode::kText, ws::Opcode::kBinary, ws::Opcode::kPing,
                                     ws::Opcode::kPong, ws::Opcode::kClose};
    const ws::Opcode kind = kKinds[in.u8() % 5];
    const std::size_t most =
        kind == ws::Opcode::kText || kind == ws::Opcode::kBinary ? kMessageBytesMax : 125;
    const std::size_t wanted = in.u8() * std::size_t{17};
    std::string data(input.substr(0, std::min({wanted, most, input.size()})));
    if (kind == ws::Opcode::kClose) data = ws::close_payload(ws::kNormal, data);
    const auto mask = masked ? std::optional<uint32_t>(in.u8() * 0x01234567U) : std::nullopt;
    stream += ws::encode_frame(kind, data, mask);
    sent.push_back({.opcode = kind, .data = std::move(data)});
  }
  const Seen seen = read_all(stream, masked, 1 + input.size() % 40);
  CHECK(seen.close_code == 0);
  CHECK(seen.messages == sent);
  // The other kind of end takes none of it.
  if (!sent.empty()) CHECK(read_all(stream, !masked, stream.size()).close_code == ws::kProtocolError);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool masked : {false, true}) {
    const Seen whole = read_all(bytes, masked, bytes.size() + 1);
    CHECK(whole == read_all(bytes, masked, 1));
    CHECK(whole == read_all(bytes, masked, 7));
  }
  try_round_trip(bytes);
  CHECK(ws::accept_key(bytes).size() == 28);
  if (size == 16) CHECK(ws::is_client_key(ws::base64(bytes)));
  return 0;
}
