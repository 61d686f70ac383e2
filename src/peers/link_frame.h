#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "consensus/core/peer_message.h"
#include "peers/peer_transport.h"

/// Bytes on a link between two replicas: frames of a length (4 bytes, little-endian), a kind (1 byte) and the
/// content. The connecting end sends kHello first, and is answered by kWelcome or kRefusal; then it alone
/// sends. Pure.
namespace gpusched::peers {

/// Version of this form. Ends of different versions refuse each other.
inline constexpr uint64_t kLinkVersion = 1;

enum class FrameKind : uint8_t {
  kHello = 1,    ///< The first one; content: kLinkVersion.
  kWelcome = 2,  ///< Frames may follow; no content.
  kRefusal = 3,  ///< Why not, for people; the connection ends.
  kMessage = 4,  ///< A `consensus::PeerFrame`.
  kFacts = 5,    ///< `PeerFacts`.
  kAlive = 6,    ///< No content: the sender lives and has nothing else to send.
};

/// Bytes of a frame's content at most. One behind the largest message of the consensus.
inline constexpr std::size_t kContentBytesMax = consensus::kFrameBytesMax;
/// The same before an end is known.
inline constexpr std::size_t kFirstBytesMax = 1'024;
inline constexpr std::size_t kHeadBytes = 5;

struct LinkFrame {
  FrameKind kind = FrameKind::kAlive;
  std::string_view content;  ///< A view into what was read.
};

/// A frame's bytes. `content` must have at most kContentBytesMax bytes.
std::string link_frame(FrameKind kind, std::string_view content = {});

/// Takes the first whole frame off `bytes`, untrusted ones. Nothing: it is not complete yet.
/// kTooLarge: its content has more than `bytes_max` bytes; kInvalidArgument: these bytes are no frame.
Result<std::optional<LinkFrame>> take_link_frame(std::string_view& bytes, std::size_t bytes_max);

std::string hello();
/// kInvalidArgument: no greeting. kVersion: of another version.
Result<Unit> check_hello(std::string_view content);

std::string encode_facts(const PeerFacts& facts);
/// Untrusted bytes; kInvalidArgument: these are none. Later versions may add more behind them.
Result<PeerFacts> decode_facts(std::string_view content);

}  // namespace gpusched::peers
