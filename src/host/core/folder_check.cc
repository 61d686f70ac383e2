#include "host/core/folder_check.h"

#include "codec/snapshot.h"
#include "host/readers/snapshot_image.h"

namespace gpusched {

FolderCheck::FolderCheck(Disk& disk, const std::string& dir) {
  for (const uint64_t position : snapshot_positions(disk, dir)) {
    const std::string path = snapshot_path(dir, position);
    const Result<Snapshot> snapshot = read_snapshot(disk, path);
    // A scheduler that is running may have removed it meanwhile.
    if (!snapshot && snapshot.error().code == ErrorCode::kNotFound) continue;
    snapshots_ += 1;
    if (!snapshot) {
      refused_.push_back(snapshot.error().message);
      continue;
    }
    Result<State> state = decode_proven(snapshot->info, snapshot->content());
    if (!state) {
      refused_.push_back(path + ": " + state.error().message);
    } else if (snapshot->info.last_position != position) {
      refused_.push_back(path + ": it was renamed; it is of record " +
                         std::to_string(snapshot->info.last_position));
    } else if (position_ == 0 && newer_.empty()) {
      state_ = std::move(*state);
      position_ = position;
    } else {
      newer_[position] = {.path = path, .digest = snapshot->info.state_digest};
    }
  }
}

Result<Unit> FolderCheck::visit(const JournalRecord& record) {
  if (record.position <= position_) return Unit{};
  if (record.position != position_ + 1) {
    return Error{
        .code = ErrorCode::kCorrupt,
        .message = "the journal continues with record " + std::to_string(record.position) +
                   ", but no usable snapshot covers the records before it (" +
                   (position_ == 0 ? "there is none" : "the oldest ends at " + std::to_string(position_)) +
                   "): restore the data folder from a backup"};
  }
  const Result<Unit> replayed = replay(state_, record, report_, events_);
  if (!replayed) return replayed;
  position_ = record.position;
  compare();
  return Unit{};
}

void FolderCheck::compare() {
  const auto met = newer_.find(position_);
  if (met == newer_.end()) return;
  if (snapshot_digest(state_).value() != met->second.digest)
    refused_.push_back(met->second.path + ": its state differs from that of the replayed journal");
  newer_.erase(met);
}

}  // namespace gpusched
