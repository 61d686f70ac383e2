#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "engine/messages/commands.h"
#include "model/identity/proposer.h"

namespace gpusched {

/// A journal record's payload: the commands that became durable together, with the one time they share.
/// Commands keep their sequence numbers by their order; see `sequence_count`.
struct CommandGroup {
  Time at;
  /// The state's running digest behind the group before; absent in what older versions wrote.
  std::optional<uint64_t> digest_before;
  std::vector<Command> commands;
  /// Proposers, where they are known, by places in `commands`, ascending.
  std::vector<std::pair<std::size_t, Proposer>> proposers;

  /// Proposer of the command at this place; null: an agent or the scheduler itself proposed it, or an older
  /// version wrote it.
  const Proposer* proposer_of(std::size_t index) const;
};

/// Builds a payload command by command, so that a command's bytes are made once.
class GroupEncoder {
 public:
  /// Forgets everything; the next payload has this time, which must not be past limits::kTimeMax.
  void begin(Time at);
  /// Notes the state's running digest behind the group before. Before the first command.
  void note_digest(uint64_t digest);
  /// `command` must be well formed. `proposer`: null is nobody. To be given only from feature level 11 on:
  /// programs before that do not read it.
  void add(const Command& command, const Proposer* proposer = nullptr);
  uint32_t command_count() const { return count_; }
  /// Valid until the next call of any other member.
  std::string_view payload() const { return bytes_; }
  /// Takes the payload out; `begin` must follow.
  std::string take() { return std::move(bytes_); }

 private:
  template <typename Content>
  void add_entry(uint64_t type, const Content& content);

  std::string bytes_;
  uint32_t count_ = 0;
};

/// Bytes that every group has besides its commands': its time, and the entry of its digest.
inline constexpr std::size_t kGroupHeaderBytes = 8 + 14;

/// Bytes that `GroupEncoder::add` appends for the command. Exact, and cheaper than encoding: it answers
/// whether a command fits a journal record before anything waits for it. The command must be well formed.
std::size_t encoded_bytes(const Command& command);
/// Bytes that its proposer takes beside it.
std::size_t encoded_bytes(const Proposer& proposer);

/// Untrusted bytes end here: kCorrupt for what no encoder wrote, kVersion for a command of a newer version.
/// Commands that are not `well_formed` are corrupt too; ids are not looked at, `decide` answers for them.
Result<CommandGroup> decode_group(std::string_view payload);

/// The group as one line of JSON, for `journal dump`.
std::string dump_group(const CommandGroup& group);

}  // namespace gpusched
