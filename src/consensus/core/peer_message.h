#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "consensus/core/values.h"

namespace gpusched::consensus {

/// A message with the marks that tell groups and disks apart: an id alone does not, since an empty disk may
/// come back under it.
struct PeerFrame {
  uint64_t cluster = 0;
  uint64_t from_store = 0;  ///< The sender's own disk.
  uint64_t to_store = 0;    ///< The receiver's, as the sender knows it; 0: it does not.
  PeerMessage message;

  friend bool operator==(const PeerFrame&, const PeerFrame&) = default;
};

/// Bytes that a frame may have: those of `CoreOptions::message_bytes_max`, or one larger entry alone, and
/// what surrounds them.
inline constexpr std::size_t kFrameBytesMax = std::size_t{16} << 20;
/// Entries that a message may have.
inline constexpr uint64_t kMessageEntriesMax = 65'536;

/// A frame in our own flat form, version 1; all integers are little-endian or LEB128.
std::string encode_frame(const PeerFrame& frame);
/// Reads untrusted bytes. kInvalidArgument: they are no frame. kVersion: of a newer form.
Result<PeerFrame> decode_frame(std::string_view bytes);

}  // namespace gpusched::consensus
