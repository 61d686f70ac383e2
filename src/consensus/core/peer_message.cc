#include "consensus/core/peer_message.h"

#include "base/bytes.h"
#include "consensus/core/members.h"

namespace gpusched::consensus {
namespace {

constexpr uint8_t kFrameVersion = 1;
constexpr uint8_t kRejects = 1;
constexpr uint8_t kHasSnapshot = 2;

bool is_message_kind(uint8_t kind) {
  switch (static_cast<MessageKind>(kind)) {
    case MessageKind::kPropose:
    case MessageKind::kAppend:
    case MessageKind::kAppendAnswer:
    case MessageKind::kVote:
    case MessageKind::kVoteAnswer:
    case MessageKind::kSnapshot:
    case MessageKind::kHeartbeat:
    case MessageKind::kHeartbeatAnswer:
    case MessageKind::kTransfer:
    case MessageKind::kCampaignNow:
    case MessageKind::kRead:
    case MessageKind::kReadAnswer:
    case MessageKind::kPreVote:
    case MessageKind::kPreVoteAnswer:
      return true;
  }
  return false;
}

void write_entry(const Entry& entry, ByteWriter& out) {
  out.u8(static_cast<uint8_t>(entry.kind));
  out.varint(entry.index);
  out.varint(entry.term);
  out.bytes(entry.data);
}

Entry read_entry(ByteReader& in) {
  Entry entry;
  const uint8_t kind = in.u8();
  if (kind > static_cast<uint8_t>(EntryKind::kMembers)) in.fail();
  entry.kind = static_cast<EntryKind>(kind);
  entry.index = in.varint();
  entry.term = in.varint();
  entry.data = in.bytes();
  if (in.ok() && entry.kind == EntryKind::kMembers && !parse_changes(entry.data)) in.fail();
  return entry;
}

void write_snapshot(const Snapshot& snapshot, ByteWriter& out) {
  out.varint(snapshot.index);
  out.varint(snapshot.term);
  write_members(snapshot.members, out);
  out.bytes(snapshot.data);
}

Snapshot read_snapshot(ByteReader& in) {
  Snapshot snapshot;
  snapshot.index = in.varint();
  snapshot.term = in.varint();
  snapshot.members = read_members(in);
  snapshot.data = in.bytes();
  return snapshot;
}

Error no_frame(const char* what) {
  return {ErrorCode::kInvalidArgument, std::string("A peer's message is not readable: ") + what + "."};
}

}  // namespace

std::string encode_frame(const PeerFrame& frame) {
  const PeerMessage& message = frame.message;
  std::string bytes;
  ByteWriter out(bytes);
  out.u8(kFrameVersion);
  out.fixed64(frame.cluster);
  out.fixed64(frame.from_store);
  out.fixed64(frame.to_store);
  out.u8(static_cast<uint8_t>(message.kind));
  out.u8(static_cast<uint8_t>((message.reject ? kRejects : 0) | (message.snapshot ? kHasSnapshot : 0)));
  for (const uint64_t number :
       {message.to, message.from, message.term, message.log_term, message.index, message.commit,
        message.commit_term, message.request_snapshot, message.reject_hint}) {
    out.varint(number);
  }
  out.bytes(message.context);
  out.varint(message.entries.size());
  for (const Entry& entry : message.entries) write_entry(entry, out);
  if (message.snapshot) write_snapshot(*message.snapshot, out);
  return bytes;
}

Result<PeerFrame> decode_frame(std::string_view bytes) {
  if (bytes.size() > kFrameBytesMax) return no_frame("it is too long");
  ByteReader in(bytes);
  const uint8_t version = in.u8();
  if (version > kFrameVersion) {
    return Error{ErrorCode::kVersion,
                 "A peer speaks version " + std::to_string(version) +
                     " of the messages between replicas, and this program version 1: upgrade this replica."};
  }
  if (version != kFrameVersion) return no_frame("its version is unknown");
  PeerFrame frame;
  PeerMessage& message = frame.message;
  frame.cluster = in.fixed64();
  frame.from_store = in.fixed64();
  frame.to_store = in.fixed64();
  const uint8_t kind = in.u8();
  const uint8_t flags = in.u8();
  if (!is_message_kind(kind)) return no_frame("its type is unknown");
  if ((flags & ~(kRejects | kHasSnapshot)) != 0) return no_frame("a flag is unknown");
  message.kind = static_cast<MessageKind>(kind);
  message.reject = (flags & kRejects) != 0;
  for (uint64_t* number :
       {&message.to, &message.from, &message.term, &message.log_term, &message.index, &message.commit,
        &message.commit_term, &message.request_snapshot, &message.reject_hint}) {
    *number = in.varint();
  }
  message.context = in.bytes();
  const uint64_t entries = in.varint();
  if (entries > kMessageEntriesMax) return no_frame("it has too many entries");
  for (uint64_t i = 0; in.ok() && i < entries; ++i) message.entries.push_back(read_entry(in));
  if ((flags & kHasSnapshot) != 0) message.snapshot = read_snapshot(in);
  if (!in.ok()) return no_frame("it ends early, or a number is out of range");
  if (!in.at_end()) return no_frame("bytes follow its end");
  return frame;
}

}  // namespace gpusched::consensus
