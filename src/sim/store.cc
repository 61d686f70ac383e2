#include "sim/store.h"

#include <iterator>
#include <utility>

namespace gpusched::sim {

StoreImage Store::open() {
  ++life_;
  position_ = 0;
  StoreImage image;
  for (const StoreRecord& record : records_) image.apply(record);
  make_durable(records_.size());
  return image;
}

void Store::process_dies() {
  ++life_;
  pending_.clear();
}

void Store::power_fails() {
  process_dies();
  records_.resize(durable_ + context_.prng.below(records_.size() - durable_ + 1));
}

void Store::wipe() {
  records_.clear();
  copied_.clear();
  durable_ = 0;
}

void Store::become_copy_of(const Store& other) {
  // Attempts that an earlier copy had run and kept are overwritten.
  for (const StoreRecord& record : records_) {
    if (record.kind == StoreRecord::Kind::kEnded && !copied_.contains(record.key))
      context_.auditor.on_outcome_overwritten(record.key);
  }
  wipe();
  pending_.clear();
  records_ = other.records_;
  durable_ = records_.size();
  for (const StoreRecord& record : records_) copied_.insert(record.key);
}

uint64_t Store::append(const StoreRecord& record) {
  pending_.push_back(record);
  return ++position_;
}

bool Store::flush() {
  if (full_) {
    // Some may fit.
    const auto fits = static_cast<std::ptrdiff_t>(context_.prng.below(pending_.size() + 1));
    std::move(pending_.begin(), pending_.begin() + fits, std::back_inserter(records_));
    pending_.erase(pending_.begin(), pending_.begin() + fits);
    return false;
  }
  for (StoreRecord& record : pending_) records_.push_back(std::move(record));
  pending_.clear();
  return true;
}

void Store::sync() {
  const uint64_t position = position_ - pending_.size();
  const std::size_t count = records_.size();
  context_.schedule.in(context_.some_delay(), [this, life = life_, position, count] {
    if (life != life_) return;
    if (std::exchange(sync_fails_, false)) return fail_sync();
    make_durable(count);
    synced_(position);
  });
}

/// The agent ends. Records that it had flushed read well as long as the kernel keeps their pages, and the
/// next agent writes all of them again.
void Store::fail_sync() {
  process_dies();
  failed_();
}

void Store::make_durable(std::size_t count) {
  for (; durable_ < count; ++durable_) {
    const StoreRecord& record = records_[durable_];
    if (record.kind == StoreRecord::Kind::kEnded && !copied_.contains(record.key)) {
      context_.auditor.on_outcome_kept(record.key, static_cast<EndCause>(record.outcome.cause()));
    }
  }
}

}  // namespace gpusched::sim
