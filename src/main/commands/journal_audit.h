#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "audit/line.h"
#include "host/core/recovery.h"
#include "journal/disk/disk.h"

namespace gpusched {

/// The line that a command of somebody's leaves, without its caller; none for what nodes and the scheduler
/// itself propose. It lacks the facts that only the door knew: address, request. `claimed_by` is the
/// command's `by`, which is the address where the client gave no name. `nodes`: their names, also of those
/// that are gone.
using NodeNames = std::map<NodeId, std::string>;
std::optional<audit::Line> audit_line_of(const NodeNames& nodes, const Command& command,
                                         const Applied& applied, Time at);

/// Rebuilds the writes of an audit from a journal: replays it, from its beginning or else from the oldest
/// snapshot that can be used. Reads only. Not thread-safe.
class JournalAudit {
 public:
  using Write = std::function<void(const audit::Line&)>;
  JournalAudit(Disk& disk, std::string snapshots, Write write);

  /// Expects every record that the journal has, in order.
  Result<Unit> visit(const JournalRecord& record);
  /// Records before the oldest usable snapshot of a journal without its beginning: nobody knows any more what
  /// became of their commands.
  uint64_t skipped() const { return skipped_; }

 private:
  Result<Unit> begin(uint64_t first_position);
  void watch(const State& behind, const Command& command, const Applied& applied, Time at,
             const Proposer* by);

  Disk& disk_;
  const std::string snapshots_;
  const Write write_;
  State state_;
  NodeNames nodes_;
  uint64_t position_ = 0;  ///< Position of the last record in `state_`.
  uint64_t skipped_ = 0;
  bool begun_ = false;
  RecoveryReport report_;
  Events events_;
};

/// The line as one JSON object, without what the journal cannot know.
std::string journal_audit_json(const audit::Line& line);
/// The same for people: time, who, what, and what became of it.
std::string journal_audit_text(const audit::Line& line);

}  // namespace gpusched
