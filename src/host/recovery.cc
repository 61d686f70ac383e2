#include "host/recovery.h"

#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"

namespace gpusched {
namespace {

Error corrupt(const std::string& what) {
  return {
      .code = ErrorCode::kCorrupt,
      .message = what + "; run `gpu-scheduler journal verify DIR` and restore the data folder from a backup"};
}

Result<Unit> replay(State& state, const JournalRecord& record, RecoveryReport& report, Events& events) {
  if (record.first_sequence != state.last.sequence + 1) {
    return corrupt("journal record " + std::to_string(record.position) + " begins with command " +
                   std::to_string(record.first_sequence) + ", expected " +
                   std::to_string(state.last.sequence + 1));
  }
  Result<CommandGroup> group = decode_group(record.payload);
  if (!group) {
    Error error = group.error();
    error.message = "journal record " + std::to_string(record.position) + ": " + error.message;
    return error;
  }
  if (group->at < state.last.at)
    return corrupt("time goes back in journal record " + std::to_string(record.position));
  for (const Command& command : group->commands) {
    events.clear();
    apply(state, command, Stamp{.sequence = state.last.sequence + 1, .at = group->at}, events);
    ++report.replayed_commands;
  }
  ++report.replayed_records;
  report.replayed_bytes += record.payload.size();
  return Unit{};
}

}  // namespace

Result<Recovered> recover(Journal& journal, SnapshotStore& snapshots, RecoveryReport& report) {
  Recovered recovered;
  Result<LatestSnapshot> latest = snapshots.latest();
  if (!latest) return latest.error();
  for (const std::string& damaged : latest->damaged) report.notes += damaged + " ";
  if (latest->snapshot.has_value()) {
    const SnapshotInfo& info = latest->snapshot->info;
    Result<State> state = decode_snapshot(latest->snapshot->content());
    if (!state) return state.error();
    if (state->last.sequence != info.last_sequence)
      return corrupt("a snapshot's content is not what its header says");
    recovered.state = std::move(*state);
    recovered.position = info.last_position;
    report.snapshot_sequence = info.last_sequence;
  }
  if (journal.first_position() > recovered.position + 1) {
    return corrupt("the journal begins at record " + std::to_string(journal.first_position()) +
                   ", but the newest usable snapshot ends at " + std::to_string(recovered.position));
  }
  // A snapshot is only written of what is durable: a journal that ends before it has lost records.
  if (journal.last_position() < recovered.position) {
    return corrupt("the journal ends at record " + std::to_string(journal.last_position()) +
                   ", before the snapshot's " + std::to_string(recovered.position));
  }
  Events events;
  const Result<Unit> read = journal.read_from(recovered.position + 1, [&](const JournalRecord& record) {
    recovered.position = record.position;
    return replay(recovered.state, record, report, events);
  });
  if (!read) return read.error();
  report.last_sequence = recovered.state.last.sequence;
  report.last_position = recovered.position;
  report.digest = recovered.state.digest.value();
  report.waiting_jobs = recovered.state.waiting_count();
  return recovered;
}

}  // namespace gpusched
