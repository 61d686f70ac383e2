#include "host/history/history_source.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "history/record/translate.h"
#include "host/core/recovery.h"
#include "host/readers/snapshot_image.h"
#include "journal/journal_inspect.h"

namespace gpusched {
namespace {

/// The error with which a reading ends when it has all that it wants.
const char* const kEnough = "enough";

/// Replays the records behind one state.
class Reading {
 public:
  Reading(State state, uint64_t position, const history::DescribeJob& describe, bool present, uint64_t after,
          uint64_t until, const history::History::Sink& sink)
      : state_(std::move(state)),
        position_(position),
        describe_(describe),
        present_(present),
        after_(after),
        until_(until),
        sink_(sink) {}

  /// Whether anything was given to the sink.
  bool has_begun() const { return has_begun_; }

  Result<Unit> run(Disk& disk, const std::string& dir) {
    if (position_ > after_) {
      has_begun_ = true;
      history::Batch batch{.position = position_, .at = state_.last.at, .events = {}};
      batch.events.emplace_back(history::adopt(state_, after_, describe_));
      if (present_) batch.present = history::all_present(state_, describe_);
      if (!sink_(std::move(batch))) return Unit{};
    }
    if (position_ >= until_) return Unit{};
    const Result<JournalScan> read = inspect_journal(
        disk, dir, [this](const StoredRecord& stored, uint64_t) { return visit(stored.record); });
    if (position_ >= until_ || stopped_) return Unit{};
    if (!read.ok()) return read.error();
    return Error{.code = ErrorCode::kCorrupt,
                 .message = "the journal ends at record " + std::to_string(position_) + ", before " +
                            std::to_string(until_)};
  }

 private:
  static Error enough() { return {.code = ErrorCode::kInternal, .message = kEnough}; }

  Result<Unit> visit(const JournalRecord& record) {
    if (record.position <= position_) return Unit{};
    if (record.position != position_ + 1) {
      return Error{.code = ErrorCode::kNotFound,
                   .message = "the journal continues with record " + std::to_string(record.position) +
                              ", behind " + std::to_string(position_)};
    }
    Events all;
    const Result<Unit> replayed =
        replay(state_, record, report_, events_, kFeatureLevel,
               [&](const State&, const Command&, const Applied&, Time, const Proposer*) {
                 all.insert(all.end(), events_.begin(), events_.end());
               });
    if (!replayed.ok()) return replayed;
    position_ = record.position;
    if (position_ > after_) {
      history::Batch batch{.position = position_, .at = state_.last.at, .events = {}};
      // The first batch has all tenants: those that are in a state from its beginning come with no event.
      if (present_) batch.present = history::present_of(state_, all, !has_begun_, describe_);
      has_begun_ = true;
      history::translate(state_, all, state_.last.at, describe_, batch.events);
      stopped_ = !sink_(std::move(batch));
    }
    return position_ >= until_ || stopped_ ? Result<Unit>(enough()) : Result<Unit>(Unit{});
  }

  State state_;
  uint64_t position_;
  const history::DescribeJob& describe_;
  const bool present_;
  const uint64_t after_, until_;
  const history::History::Sink& sink_;
  RecoveryReport report_;
  Events events_;
  bool has_begun_ = false;
  bool stopped_ = false;
};

/// Positions of states to begin with: the newest at or before `after` first; those behind it last, from the
/// oldest on. 0: the empty state.
std::vector<uint64_t> candidates(Disk& disk, const std::string& dir, uint64_t after) {
  std::vector<uint64_t> before = {0};
  std::vector<uint64_t> behind;
  for (const uint64_t position : snapshot_positions(disk, dir))
    (position <= after ? before : behind).push_back(position);
  std::reverse(before.begin(), before.end());
  before.insert(before.end(), behind.begin(), behind.end());
  return before;
}

Result<State> state_at(Disk& disk, const std::string& dir, uint64_t position) {
  if (position == 0) return State();
  const Result<Snapshot> snapshot = read_snapshot(disk, snapshot_path(dir, position));
  if (!snapshot.ok()) return snapshot.error();
  return decode_proven(snapshot->info, snapshot->content());
}

}  // namespace

Result<Unit> read_history(const std::string& data_dir, const history::DescribeJob& describe, bool present,
                          uint64_t after, uint64_t until, const history::History::Sink& sink) {
  Disk& disk = posix_disk();
  const std::string snapshots = data_dir + "/snapshots";
  Error last{.code = ErrorCode::kCorrupt, .message = "there is no state to begin with"};
  for (const uint64_t position : candidates(disk, snapshots, after)) {
    Result<State> state = state_at(disk, snapshots, position);
    if (!state.ok()) {
      last = state.error();
      continue;
    }
    Reading reading(std::move(*state), position, describe, present, after, until, sink);
    const Result<Unit> read = reading.run(disk, data_dir + "/journal");
    if (read.ok() || reading.has_begun()) return read;
    last = read.error();
  }
  return last;
}

}  // namespace gpusched
