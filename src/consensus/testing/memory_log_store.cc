#include "consensus/testing/memory_log_store.h"

#include "base/check.h"

namespace gpusched::consensus {

Result<Unit> MemoryLogStore::operate(bool& takes_effect) {
  const uint64_t operation = operations_++;
  const bool dead = fails_at_ && operation >= *fails_at_;
  takes_effect = !dead || (fails_done_ && operation == *fails_at_);
  if (dead) return Error{ErrorCode::kOutcomeUnknown, "the power failed"};
  return Unit{};
}

HardState MemoryLogStore::as_kept(HardState hard) const {
  if (lies.forgets_votes) hard.vote = 0;
  if (lies.forgets_terms) hard = {.commit = hard.commit};
  return hard;
}

void MemoryLogStore::apply(const Write& write) {
  if (write.entry) {
    const uint64_t last =
        durable_->entries.empty() ? durable_->snapshot.index : durable_->entries.back().index;
    CHECK(lies.drops_suffix || write.entry->index == last + 1);
    durable_->entries.push_back(*write.entry);
  }
  if (write.hard) durable_->hard_state = as_kept(*write.hard);
}

Result<std::optional<StoredLog>> MemoryLogStore::load() {
  CHECK(written_.empty());  // Nobody reads a disk that is still written to.
  return durable_;
}

Result<Unit> MemoryLogStore::create(const Identity& identity, const Members& members) {
  CHECK(!durable_);
  durable_ = StoredLog{.identity = identity, .snapshot = {.members = members}};
  return Unit{};
}

Result<Unit> MemoryLogStore::truncate_after(uint64_t index) {
  bool takes_effect = false;
  const Result<Unit> result = operate(takes_effect);
  if (takes_effect) {
    std::erase_if(written_, [&](const Write& write) { return write.entry && write.entry->index > index; });
    std::erase_if(durable_->entries, [&](const Entry& entry) { return entry.index > index; });
  }
  return result;
}

Result<Unit> MemoryLogStore::append(const std::optional<HardState>& hard, const std::vector<Entry>& entries) {
  bool takes_effect = false;
  const Result<Unit> result = operate(takes_effect);
  if (!takes_effect) return result;
  if (hard) written_.push_back({.entry = {}, .hard = hard});
  for (const Entry& entry : entries) written_.push_back({.entry = entry, .hard = {}});
  return result;
}

Result<Unit> MemoryLogStore::sync() {
  bool takes_effect = false;
  const Result<Unit> result = operate(takes_effect);
  if (!takes_effect || lies.syncs_nothing) return result;
  for (const Write& write : written_) apply(write);
  written_.clear();
  return result;
}

Result<Unit> MemoryLogStore::put_snapshot(const Snapshot& snapshot, const HardState& hard, bool keep_suffix) {
  bool takes_effect = false;
  if (lies.tears_snapshots) {
    const Result<Unit> first = operate(takes_effect);
    if (takes_effect) durable_->hard_state = as_kept(hard);
    if (!first) return first;
  }
  const Result<Unit> result = operate(takes_effect);
  if (!takes_effect) return result;
  for (const Write& write : written_) apply(write);  // The step is durable, and so is what came before.
  written_.clear();
  durable_->hard_state = as_kept(hard);
  durable_->snapshot = snapshot;
  const bool keeps = keep_suffix && !lies.drops_suffix;
  std::erase_if(durable_->entries,
                [&](const Entry& entry) { return !keeps || entry.index <= snapshot.index; });
  return result;
}

void MemoryLogStore::lose_power(Prng& draw) {
  const uint64_t kept = draw.below(written_.size() + 1);
  if (!lies.syncs_nothing) {
    for (uint64_t i = 0; i < kept; ++i) apply(written_[i]);
  }
  written_.clear();
  fails_at_.reset();
}

void MemoryLogStore::fail_after(uint64_t operations, bool done) {
  fails_at_ = operations_ + operations;
  fails_done_ = done;
}

void MemoryLogStore::wipe() {
  durable_.reset();
  written_.clear();
  fails_at_.reset();
}

}  // namespace gpusched::consensus
