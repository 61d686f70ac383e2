#include "node/attempts/records.h"

#include <algorithm>
#include <utility>

namespace gpusched::agent {
namespace {

constexpr Duration kFullDiskPause = milliseconds(200);

}  // namespace

uint64_t Records::append(const StoreRecord& record) {
  flush_wanted_ = true;
  return store_.append(record);
}

Records::Flushed Records::flush(Time now) {
  if (!flush_wanted_) return Flushed::kDone;
  if (!store_.flush()) {
    next_flush_ = now + kFullDiskPause;
    return std::exchange(disk_full_, true) ? Flushed::kDiskFull : Flushed::kDiskFilledUp;
  }
  flush_wanted_ = false;
  next_flush_ = kNever;
  return std::exchange(disk_full_, false) ? Flushed::kDiskHasRoom : Flushed::kDone;
}

void Records::sync_if_wanted() {
  if (std::exchange(sync_wanted_, false)) store_.sync();
}

void Records::on_synced(uint64_t position) { synced_position_ = std::max(synced_position_, position); }

}  // namespace gpusched::agent
