#include "peers/link_frame.h"

#include "base/bytes.h"
#include "base/check.h"

namespace gpusched::peers {
namespace {

constexpr std::size_t kVersionBytesMax = 200;

Error no_frame(const std::string& what) { return {.code = ErrorCode::kInvalidArgument, .message = what}; }

}  // namespace

std::string link_frame(FrameKind kind, std::string_view content) {
  CHECK(content.size() <= kContentBytesMax);
  std::string bytes;
  bytes.reserve(kHeadBytes + content.size());
  ByteWriter out(bytes);
  out.fixed32(static_cast<uint32_t>(content.size()));
  out.u8(static_cast<uint8_t>(kind));
  bytes.append(content);
  return bytes;
}

Result<std::optional<LinkFrame>> take_link_frame(std::string_view& bytes, std::size_t bytes_max) {
  if (bytes.size() < kHeadBytes) return std::optional<LinkFrame>();
  ByteReader in(bytes);
  const std::size_t size = in.fixed32();
  const uint8_t kind = in.u8();
  if (kind < static_cast<uint8_t>(FrameKind::kHello) || kind > static_cast<uint8_t>(FrameKind::kAlive)) {
    return no_frame("it sent a frame of the unknown kind " + std::to_string(kind));
  }
  if (size > bytes_max) {
    return Error{.code = ErrorCode::kTooLarge,
                 .message = "it sent a frame of " + std::to_string(size) + " bytes, and " +
                            std::to_string(bytes_max) + " are allowed"};
  }
  if (bytes.size() < kHeadBytes + size) return std::optional<LinkFrame>();
  const LinkFrame frame{.kind = static_cast<FrameKind>(kind), .content = bytes.substr(kHeadBytes, size)};
  bytes.remove_prefix(kHeadBytes + size);
  return std::optional(frame);
}

std::string hello() {
  std::string content;
  ByteWriter(content).varint(kLinkVersion);
  return link_frame(FrameKind::kHello, content);
}

Result<Unit> check_hello(std::string_view content) {
  ByteReader in(content);
  const uint64_t version = in.varint();
  if (!in.ok()) return no_frame("it sent no greeting");
  if (version == kLinkVersion) return Unit{};
  return Error{.code = ErrorCode::kVersion,
               .message = "it speaks version " + std::to_string(version) +
                          " of the link between replicas, and this one version " +
                          std::to_string(kLinkVersion) + ": run the same gpu-scheduler on both"};
}

std::string encode_facts(const PeerFacts& facts) {
  std::string content;
  ByteWriter out(content);
  out.bytes(std::string_view(facts.version).substr(0, kVersionBytesMax));
  for (const uint16_t port :
       {facts.http, facts.grpc, facts.tasks_grpc, facts.tasks_http, facts.allocation, facts.metrics}) {
    out.varint(port);
  }
  out.u8(facts.https ? 1 : 0);
  return content;
}

Result<PeerFacts> decode_facts(std::string_view content) {
  ByteReader in(content);
  PeerFacts facts;
  facts.version = in.bytes();
  bool good = facts.version.size() <= kVersionBytesMax;
  for (uint16_t* const port :
       {&facts.http, &facts.grpc, &facts.tasks_grpc, &facts.tasks_http, &facts.allocation, &facts.metrics}) {
    const uint64_t value = in.varint();
    good = good && value <= UINT16_MAX;
    *port = static_cast<uint16_t>(value);
  }
  facts.https = in.u8() != 0;
  if (!good || !in.ok()) return no_frame("it sent facts that are none");
  return facts;
}

}  // namespace gpusched::peers
