#include "host/core/recovery.h"

#include <cinttypes>
#include <cstdio>
#include <future>

#include "engine/engine.h"
#include "host/readers/snapshot_image.h"

namespace gpusched {
namespace {

Error corrupt(const std::string& what) {
  return {
      .code = ErrorCode::kCorrupt,
      .message = what + "; run `gpu-scheduler journal verify DIR` and restore the data folder from a backup"};
}

Result<Unit> check_level(int64_t used, int64_t known) {
  if (used <= known) return Unit{};
  return Error{.code = ErrorCode::kVersion,
               .message = "a newer version has used this data folder (feature level " + std::to_string(used) +
                          ", this program supports " + std::to_string(known) +
                          "): start that version, or restore a backup from before its first start"};
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

/// The program that wrote the record had another state.
Error diverged(const State& state, uint64_t position, uint64_t expected) {
  return {.code = ErrorCode::kCorrupt,
          .message = "journal record " + std::to_string(position) +
                     " was written after a state with digest " + hex(expected) +
                     ", but replaying the journal gives " + hex(state.digest.value()) +
                     ": this program decides differently from the one that wrote the journal, or data was "
                     "silently corrupted. Nothing was changed. Start the version that wrote the journal, and "
                     "report this; or restore the data folder from a backup"};
}

/// The digest of what the state would be as a snapshot, and a copy of the state, each by a thread.
Digest digest_and_copy(const State& state, std::optional<State>& copy) {
  std::future<Digest> digest = std::async(std::launch::async, [&state] { return snapshot_digest(state); });
  copy = state.clone();
  return digest.get();
}

Result<Unit> replay_decoded(State& state, DecodedRecord& record, RecoveryReport& report, Events& events,
                            int64_t level, const ReplayWatcher& watcher) {
  if (record.first_sequence != state.last.sequence + 1) {
    return corrupt("journal record " + std::to_string(record.position) + " begins with command " +
                   std::to_string(record.first_sequence) + ", expected " +
                   std::to_string(state.last.sequence + 1));
  }
  Result<CommandGroup>& group = record.group;
  if (!group) {
    Error error = group.error();
    error.message = "journal record " + std::to_string(record.position) + ": " + error.message;
    return error;
  }
  if (group->at < state.last.at)
    return corrupt("time goes back in journal record " + std::to_string(record.position));
  if (group->digest_before && *group->digest_before != state.digest.value())
    return diverged(state, record.position, *group->digest_before);
  for (std::size_t i = 0; i < group->commands.size(); ++i) {
    const Command& command = group->commands[i];
    if (const auto* configure = std::get_if<Configure>(&command)) {
      const Result<Unit> known = check_level(configure->config.feature_level, level);
      if (!known) return known;
    }
    events.clear();
    const Applied applied =
        apply(state, command, Stamp{.sequence = state.last.sequence + 1, .at = group->at}, events);
    if (watcher != nullptr) watcher(state, command, applied, group->at, group->proposer_of(i));
    ++report.replayed_commands;
  }
  ++report.replayed_records;
  report.replayed_bytes += record.payload_bytes;
  return Unit{};
}

}  // namespace

Result<Unit> replay(State& state, const JournalRecord& record, RecoveryReport& report, Events& events,
                    int64_t level, const ReplayWatcher& watcher) {
  DecodedRecord decoded = decode_record(record);
  return replay_decoded(state, decoded, report, events, level, watcher);
}

Result<Recovered> recover(Journal& journal, SnapshotStore& snapshots, RecoveryReport& report, int64_t level,
                          Threads threads) {
  Recovered recovered;
  const Result<LatestSnapshot> latest = snapshots.latest([&](const Snapshot& snapshot) -> Result<Unit> {
    // Where no record follows, the state stays as it is, and so does a copy.
    const bool copies = threads == Threads::kTwo && snapshot.info.last_position == journal.last_position();
    recovered.copy.reset();
    Result<State> state = decode_proven(snapshot.info, snapshot.content(), [&](const State& decoded) {
      return copies ? digest_and_copy(decoded, recovered.copy) : snapshot_digest(decoded);
    });
    if (!state) return state.error();
    const Result<Unit> known = check_level(state->config.feature_level, level);
    if (!known) return known;
    recovered.state = std::move(*state);
    return Unit{};
  });
  if (!latest) return latest.error();
  if (!latest->snapshot.has_value()) recovered.copy.reset();
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
  const Result<Unit> read =
      read_decoded(journal, recovered.position + 1, threads, [&](DecodedRecord& record) -> Result<Unit> {
        recovered.position = record.position;
        Result<Unit> replayed = replay_decoded(recovered.state, record, report, events, level, nullptr);
        record.group = CommandGroup{};  // Its memory is not needed any more.
        return replayed;
      });
  if (!read) return read.error();
  report.last_sequence = recovered.state.last.sequence;
  report.last_position = recovered.position;
  report.digest = recovered.state.digest.value();
  report.waiting_jobs = recovered.state.waiting_count();
  return recovered;
}

}  // namespace gpusched
