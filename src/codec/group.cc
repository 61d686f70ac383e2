#include "codec/group.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/check.h"
#include "base/limits.h"
#include "codec/binary.h"
#include "codec/dump.h"
#include "codec/encoded_size.h"

namespace gpusched {
namespace {

/// Stands where a command's type does, in front of a digest. Programs that know no digests refuse it as a
/// command of a newer version.
constexpr uint64_t kDigestEntry = 0x3FFF;
/// The same, in front of the command whose proposer it names.
constexpr uint64_t kProposerEntry = 0x3FFE;

enum class Decoded : uint8_t { kOk, kCorrupt, kNewer };

template <std::size_t Index = 0>
Decoded decode_command(std::size_t index, std::string_view bytes, Command& command) {
  if constexpr (Index < std::variant_size_v<Command>) {
    if (index != Index) return decode_command<Index + 1>(index, bytes, command);
    auto& concrete = command.emplace<Index>();
    Decoder decoder(bytes);
    decoder.decode(concrete);
    if (!decoder.ok()) return Decoded::kCorrupt;
    return decoder.is_newer() ? Decoded::kNewer : Decoded::kOk;
  } else {
    return Decoded::kCorrupt;
  }
}

bool is_caller_kind(CallerKind kind) { return kind >= CallerKind::kAnonymous && kind <= kCallerKindLast; }

Decoded decode_proposer(std::string_view bytes, Proposer& proposer) {
  proposer.kind = {};  // For commands without a proposer.
  Decoder decoder(bytes);
  decoder.decode(proposer);
  if (!decoder.ok()) return Decoded::kCorrupt;
  if (decoder.is_newer()) return Decoded::kNewer;
  return is_caller_kind(proposer.kind) ? Decoded::kOk : Decoded::kCorrupt;
}

std::string hex64(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

Error newer(const std::string& what) {
  return {.code = ErrorCode::kVersion,
          .message =
              what + " is unknown: it was written by a newer version; start that version with this folder"};
}

}  // namespace

void GroupEncoder::begin(Time at) {
  CHECK(at >= Time{});
  CHECK(at <= limits::kTimeMax);  // Everything that is written must be readable.
  bytes_.clear();
  count_ = 0;
  ByteWriter(bytes_).fixed64(static_cast<uint64_t>(at.ns));
}

void GroupEncoder::note_digest(uint64_t digest) {
  CHECK(count_ == 0);
  ByteWriter writer(bytes_);
  writer.varint(kDigestEntry);
  writer.fixed32(sizeof digest);
  writer.fixed64(digest);
}

void GroupEncoder::add(const Command& command, const Proposer* proposer) {
  CHECK(well_formed(command));  // Everything that is written must be readable.
  if (proposer != nullptr) {
    CHECK(is_caller_kind(proposer->kind));
    add_entry(kProposerEntry, *proposer);
  }
  std::visit([&](const auto& concrete) { add_entry(command.index(), concrete); }, command);
  ++count_;
}

template <typename Content>
void GroupEncoder::add_entry(uint64_t type, const Content& content) {
  ByteWriter writer(bytes_);
  writer.varint(type);
  // The content's length stands before it, in four bytes so that nothing has to move.
  const std::size_t at = bytes_.size();
  writer.fixed32(0);
  Encoder(bytes_).encode(content);
  const auto size = static_cast<uint32_t>(bytes_.size() - at - 4);
  std::memcpy(bytes_.data() + at, &size, sizeof size);
}

std::size_t encoded_bytes(const Command& command) {
  static_assert(std::variant_size_v<Command> <= 0x80, "a command's number takes one byte");
  constexpr std::size_t kHeaderBytes = 1 + sizeof(uint32_t);
  return kHeaderBytes +
         std::visit([](const auto& concrete) { return SizeVisitor::size_of(concrete); }, command);
}

std::size_t encoded_bytes(const Proposer& proposer) {
  constexpr std::size_t kHeaderBytes = 2 + sizeof(uint32_t);
  return kHeaderBytes + SizeVisitor::size_of(proposer);
}

const Proposer* CommandGroup::proposer_of(std::size_t index) const {
  const auto found =
      std::ranges::lower_bound(proposers, index, {}, [](const auto& one) { return one.first; });
  return found == proposers.end() || found->first != index ? nullptr : &found->second;
}

Result<CommandGroup> decode_group(std::string_view payload) {
  CommandGroup group;
  ByteReader reader(payload);
  group.at = Time{static_cast<int64_t>(reader.fixed64())};
  while (reader.ok() && !reader.at_end()) {
    const uint64_t index = reader.varint();
    const uint32_t size = reader.fixed32();
    if (!reader.ok() || size > reader.remaining()) {
      return Error{.code = ErrorCode::kCorrupt, .message = "a command's length exceeds its record"};
    }
    const std::string_view bytes = reader.take(size);
    if (index == kDigestEntry) {
      ByteReader digest(bytes);
      const bool first = group.commands.empty() && !group.digest_before;
      if (!first || bytes.size() != sizeof(uint64_t))
        return Error{.code = ErrorCode::kCorrupt, .message = "a record's digest is missing or misplaced"};
      group.digest_before = digest.fixed64();
      continue;
    }
    if (index == kProposerEntry) {
      const bool second = !group.proposers.empty() && group.proposers.back().first == group.commands.size();
      const Decoded decoded =
          decode_proposer(bytes, group.proposers.emplace_back(group.commands.size(), Proposer{}).second);
      if (decoded == Decoded::kNewer) return newer("a field of a command's proposer");
      if (decoded == Decoded::kCorrupt || second)
        return Error{.code = ErrorCode::kCorrupt, .message = "the proposer of a command cannot be decoded"};
      continue;
    }
    if (index >= std::variant_size_v<Command>) return newer("command type " + std::to_string(index));
    Command& command = group.commands.emplace_back();
    const Decoded decoded = decode_command(index, bytes, command);
    if (decoded == Decoded::kNewer) return newer("a field of the command " + std::string(name_of(command)));
    if (decoded == Decoded::kCorrupt || !well_formed(command)) {
      return Error{
          .code = ErrorCode::kCorrupt,
          .message = "command " + std::to_string(group.commands.size()) + " of a record cannot be decoded"};
    }
  }
  if (!reader.ok() || (!group.proposers.empty() && group.proposers.back().first == group.commands.size()))
    return Error{.code = ErrorCode::kCorrupt, .message = "a record is too short"};
  if (group.at < Time{} || group.at > limits::kTimeMax) {
    return Error{.code = ErrorCode::kCorrupt, .message = "a record's time is out of range"};
  }
  return group;
}

std::string dump_group(const CommandGroup& group) {
  std::string out = "{\"at_ns\":" + std::to_string(group.at.ns);
  if (group.digest_before) out += ",\"digest_before\":\"" + hex64(*group.digest_before) + "\"";
  out += ",\"commands\":[";
  bool first = true;
  std::size_t index = 0;
  for (const Command& command : group.commands) {
    if (!first) out += ',';
    first = false;
    out += "{\"type\":\"";
    out += name_of(command);
    out += "\",\"fields\":";
    std::visit([&](const auto& concrete) { dump_json(out, concrete); }, command);
    if (const Proposer* const proposer = group.proposer_of(index++)) {
      out += ",\"proposer\":";
      dump_json(out, *proposer);
    }
    out += '}';
  }
  return out + "]}";
}

}  // namespace gpusched
