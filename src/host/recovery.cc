#include "host/recovery.h"

#include "codec/group.h"
#include "engine/engine.h"
#include "host/snapshot_image.h"

namespace gpusched {
namespace {

Error corrupt(const std::string& what) {
  return {
      .code = ErrorCode::kCorrupt,
      .message = what + "; run `gpu-scheduler journal verify DIR` and restore the data folder from a backup"};
}

}  // namespace

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

Result<Recovered> recover(Journal& journal, SnapshotStore& snapshots, RecoveryReport& report) {
  Recovered recovered;
  const Result<LatestSnapshot> latest = snapshots.latest([&](const Snapshot& snapshot) -> Result<Unit> {
    Result<State> state = decode_proven(snapshot.info, snapshot.content());
    if (!state) return state.error();
    recovered.state = std::move(*state);
    return Unit{};
  });
  if (!latest) return latest.error();
  report.refused_snapshots = latest->refused;
  std::string refused;
  for (const std::string& sentence : latest->refused) refused += "; a snapshot cannot be used: " + sentence;
  if (latest->snapshot.has_value()) {
    recovered.position = latest->snapshot->info.last_position;
    report.snapshot_sequence = latest->snapshot->info.last_sequence;
    report.snapshot_position = recovered.position;
  }
  if (journal.first_position() > recovered.position + 1) {
    const std::string usable = latest->snapshot.has_value() ? "the newest usable snapshot ends at " +
                                                                  std::to_string(recovered.position)
                                                            : "no snapshot can be used";
    return corrupt("the journal begins at record " + std::to_string(journal.first_position()) + ", but " +
                   usable + refused);
  }
  // A snapshot is only written of what is durable: a journal that ends before it has lost records. One that
  // cannot be used says so by its name.
  if (journal.last_position() < latest->last_position) {
    return corrupt("the journal ends at record " + std::to_string(journal.last_position()) +
                   ", before the newest snapshot's " + std::to_string(latest->last_position) + refused);
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
