#include "host/core/data_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/limits.h"
#include "base/storage_limits.h"
#include "codec/group.h"
#include "host/core/standby.h"
#include "host/core/system_clock.h"
#include "log/log.h"

namespace gpusched {
namespace {

/// Makes the data folder, durably: what is synced in a folder that is gone is gone.
Result<Unit> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST) return Unit{};
    return Error{.code = ErrorCode::kIo, .message = "cannot create " + path + ": " + std::strerror(errno)};
  }
  const Result<Unit> synced = posix_disk().sync_dir(folder_above(path));
  // One that may be written and not read cannot be synced.
  if (!synced && synced.error().code != ErrorCode::kPermissionDenied) return synced;
  return Unit{};
}

void warn_of_small_volume(const HostOptions& options) {
  const std::optional<DiskRoom> room = posix_disk().room(options.data_dir);
  if (!room || room->total_bytes >= limits::kVolumeBytesMin) return;
  log_event(
      LogLevel::kWarning, "journal", "volume_small", {},
      {{"folder", options.data_dir},
       {"bytes", room->total_bytes},
       {"recommended_bytes", limits::kVolumeBytesMin},
       {"means", "snapshots are taken often, and new work is refused early; see docs/operate/recover.md"}});
}

void log_refused_snapshots(const RecoveryReport& report) {
  for (const std::string& refused : report.refused_snapshots) {
    log_event(
        LogLevel::kError, "snapshot", "snapshot_refused", {},
        {{"error", refused},
         {"did", "the state was built from an older snapshot or none, and the journal; nothing is lost"}});
  }
}

Error refuse(const std::string& why) { return {.code = ErrorCode::kInvalidArgument, .message = why}; }

/// Whether the operator's word is needed and can be carried out.
Result<Unit> check_acceptable(Time newest, Time wall, Duration bound) {
  if (!newest.valid())
    return refuse("this data folder is empty: the first start accepts the wall clock as it is");
  if (StampClock::is_near(wall - newest, bound))
    return refuse(
        "the wall clock is near the newest time in the journal: the next start uses it, so there is nothing "
        "to accept");
  if (wall < newest)
    return refuse(
        "the wall clock is behind the newest time in the journal, which never goes back; if the clock is "
        "right, restore a backup from before the clock was wrong, or simply continue: durations remain "
        "correct");
  if (wall > limits::kTimeMax)
    return refuse(
        "the wall clock is past the year 2116, which the journal cannot represent; set it (timedatectl "
        "set-ntp true)");
  return Unit{};
}

/// At the very first start there is nothing to compare the clock with, and what it says is kept for ever.
Result<Unit> check_first_clock(Time wall) {
  if (limits::kTimeMin <= wall && wall <= limits::kTimeMax) return Unit{};
  return refuse(
      "this machine's clock is before 2024 or after 2116; set it (timedatectl set-ntp true), then start "
      "again. A new data folder would keep that time");
}

/// The scheduler's own journal. Whoever appends to a replica's beside its group makes a second history.
Result<std::shared_ptr<FileJournal>> open_own_journal(const HostOptions& options) {
  if (std::error_code failed; std::filesystem::exists(options.data_dir + "/replica", failed)) {
    return refuse(options.data_dir +
                  " is the data folder of one of several schedulers, and nothing may be added to it alone: "
                  "start it with its peers in the configuration");
  }
  Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open(options.data_dir + "/journal", ordinary_journal_options(options));
  if (!journal.ok()) return journal.error();
  return std::shared_ptr<FileJournal>(std::move(*journal));
}

}  // namespace

FileJournalOptions ordinary_journal_options(const HostOptions& options) {
  return {.segment_bytes = static_cast<uint64_t>(options.segment_bytes),
          .needed_from = SnapshotStore::needed_from(posix_disk(), options.data_dir + "/snapshots")};
}

Result<DataFolder> open_data_folder(const HostOptions& options, SharedJournal* shared) {
  const SystemClock clock;
  const Time begin = clock.monotonic();
  const Result<Unit> made = make_folder(options.data_dir);
  if (!made.ok()) return made.error();
  warn_of_small_volume(options);
  DataFolder folder;
  std::optional<Standby::Warm> warm;
  if (shared != nullptr) {
    // First: it may be writing a snapshot.
    if (const std::shared_ptr<Standby> standby = shared->standby()) warm = standby->take();
    folder.journal = std::shared_ptr<FileJournal>(std::shared_ptr<void>(), &shared->journal());
  } else {
    Result<std::shared_ptr<FileJournal>> journal = open_own_journal(options);
    if (!journal.ok()) return journal.error();
    folder.journal = std::move(*journal);
  }
  Result<std::unique_ptr<SnapshotStore>> snapshots =
      SnapshotStore::open(options.data_dir + "/snapshots", nullptr, folder.journal->store_id());
  if (!snapshots.ok()) return snapshots.error();
  folder.snapshots = std::move(*snapshots);
  const OpenReport& opened = folder.journal->open_report();
  if (opened.bytes_cut > 0) {
    folder.report.notes += "removed an unfinished write of " + std::to_string(opened.bytes_cut) +
                           " bytes from " + opened.segment + " at offset " + std::to_string(opened.offset) +
                           " (" + opened.reason + "). ";
  }
  if (warm) {
    folder.report = std::move(warm->report);
    folder.recovered = std::move(warm->recovered);
  } else {
    Result<Recovered> recovered =
        recover(*folder.journal, *folder.snapshots, folder.report, kFeatureLevel, Threads::kTwo);
    if (!recovered.ok()) return recovered.error();
    folder.recovered = std::move(*recovered);
  }
  const uint64_t leads_in = shared == nullptr ? 0 : shared->term();
  folder.report.term = std::max({options.term, leads_in, folder.journal->last_term()});
  log_refused_snapshots(folder.report);
  if (!folder.recovered.state.last.at.valid()) {
    const Result<Unit> good = check_first_clock(clock.wall());
    if (!good.ok()) return good.error();
  }
  folder.report.elapsed_ms = (clock.monotonic() - begin).ms();
  return folder;
}

Result<AcceptedClock> accept_clock(const HostOptions& options, const Clock& clock) {
  Result<DataFolder> folder = open_data_folder(options);
  if (!folder.ok()) return folder.error();
  const State& state = folder->recovered.state;
  const AcceptedClock accepted{.newest = state.last.at, .wall = clock.wall()};
  const Result<Unit> acceptable =
      check_acceptable(accepted.newest, accepted.wall, options.tuning.clock_jump_max);
  if (!acceptable.ok()) return acceptable.error();
  GroupEncoder encoder;
  encoder.begin(accepted.wall);
  encoder.note_digest(state.digest.value());
  encoder.add(NoteStart{});
  Result<Unit> done = folder->journal->append({.position = folder->recovered.position + 1,
                                               .term = std::max<uint64_t>(folder->journal->last_term(), 1),
                                               .first_sequence = state.last.sequence + 1,
                                               .command_count = 1,
                                               .payload = encoder.payload()});
  if (done.ok()) done = folder->journal->sync();
  if (done.ok()) done = folder->journal->seal();
  if (!done.ok()) return done.error();
  return accepted;
}

}  // namespace gpusched
