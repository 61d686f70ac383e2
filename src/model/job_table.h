#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "model/index/job_slots.h"
#include "model/job.h"

namespace gpusched {

/// All jobs, by id: records in stable places, found by hash, walked in id order. Not thread-safe.
class JobTable {
 public:
  JobTable() = default;
  JobTable(JobTable&&) noexcept = default;
  JobTable& operator=(JobTable&&) noexcept = default;
  /// A copy of its own; the jobs' specifications are shared.
  JobTable clone() const {
    JobTable copy;
    copy.chunks_.reserve(chunks_.size());
    for (const std::vector<Job>& chunk : chunks_) {
      std::vector<Job>& made = copy.chunks_.emplace_back();
      made.reserve(kChunk);
      made.insert(made.end(), chunk.begin(), chunk.end());
    }
    copy.free_ = free_;
    copy.slots_ = slots_;
    copy.ids_ = ids_;
    copy.late_ = late_;
    copy.erased_ = erased_;
    return copy;
  }

  /// A copy of those that `wanted(const Job&)` holds for; their specifications are shared.
  template <typename Wanted>
  JobTable clone_if(Wanted&& wanted) const {
    std::vector<const Job*> chosen;
    for (const std::vector<Job>& chunk : chunks_) {
      for (const Job& job : chunk) {
        if (job.id.valid() && wanted(job)) chosen.push_back(&job);
      }
    }
    std::sort(chosen.begin(), chosen.end(), [](const Job* a, const Job* b) { return a->id < b->id; });
    JobTable copy;
    copy.reserve(chosen.size());
    for (const Job* job : chosen) copy.insert(*job);
    return copy;
  }

  /// Adds a job, fastest in ascending order of ids. The reference stays valid until the job is erased.
  Job& insert(Job job) {
    const JobId id = job.id;
    uint32_t slot = 0;
    Job* place = nullptr;
    if (free_.empty()) {
      if (chunks_.empty() || chunks_.back().size() == kChunk) chunks_.emplace_back().reserve(kChunk);
      std::vector<Job>& last = chunks_.back();
      slot = static_cast<uint32_t>((chunks_.size() - 1) * kChunk + last.size());
      place = &last.emplace_back(std::move(job));
    } else {
      slot = free_.back();
      free_.pop_back();
      place = &at_slot(slot);
      *place = std::move(job);
    }
    slots_.insert(id, slot);
    if (ids_.empty() || id > ids_.back()) {
      ids_.push_back(id);
    } else {
      add_late(id);
    }
    return *place;
  }
  void erase(JobId id) {
    const std::optional<uint32_t> slot = slots_.find(id);
    CHECK(slot.has_value());
    at_slot(*slot) = Job{};
    free_.push_back(*slot);
    slots_.erase(id);
    if (!late_.empty() && late_.erase(id) > 0) return;
    if (++erased_ > 1024 && erased_ > ids_.size() / 2) compact();
  }
  Job* find(JobId id) {
    const std::optional<uint32_t> slot = slots_.find(id);
    return slot ? &at_slot(*slot) : nullptr;
  }
  const Job* find(JobId id) const { return const_cast<JobTable*>(this)->find(id); }
  std::size_t size() const { return slots_.size(); }
  void reserve(std::size_t count) {
    slots_.reserve(count);
    ids_.reserve(count);
  }

  /// Calls `visit(const Job&)` in ascending order of id; false from it ends the walk.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    auto late = late_.begin();
    auto id = ids_.begin();
    while (id != ids_.end() || late != late_.end()) {
      const bool takes_late = late != late_.end() && (id == ids_.end() || *late <= *id);
      if (takes_late && id != ids_.end() && *late == *id) ++id;  // Erased, and added again.
      const Job* job = find(takes_late ? *late++ : *id++);
      if (job != nullptr && !visit(*job)) return;
    }
  }
  /// The same, newest first, beginning behind `before` (an id; 0 for the newest).
  template <typename Visit>
  void for_each_newest_first(JobId before, Visit&& visit) const {
    auto it = ids_.end();
    if (before.valid()) it = std::lower_bound(ids_.begin(), ids_.end(), before);
    auto late = late_.end();
    if (before.valid()) late = late_.lower_bound(before);
    while (it != ids_.begin() || late != late_.begin()) {
      const bool takes_late =
          late != late_.begin() && (it == ids_.begin() || *std::prev(late) >= *std::prev(it));
      if (takes_late && it != ids_.begin() && *std::prev(late) == *std::prev(it)) --it;
      const Job* job = find(takes_late ? *--late : *--it);
      if (job != nullptr && !visit(*job)) return;
    }
  }

 private:
  static constexpr std::size_t kChunk = 4096;

  Job& at_slot(uint32_t slot) { return chunks_[slot / kChunk][slot % kChunk]; }
  const Job& at_slot(uint32_t slot) const { return chunks_[slot / kChunk][slot % kChunk]; }
  // Few at a time, in a tree; then all are merged, so that each costs as little as its share of that.
  void add_late(JobId id) {
    late_.insert(id);
    if (late_.size() <= 4'096 || late_.size() <= ids_.size() / 4) return;
    std::vector<JobId> merged;
    merged.reserve(ids_.size() + late_.size());
    std::set_union(ids_.begin(), ids_.end(), late_.begin(), late_.end(), std::back_inserter(merged));
    ids_ = std::move(merged);
    late_.clear();
  }
  void compact() {
    std::erase_if(ids_, [this](JobId id) { return !slots_.contains(id); });
    erased_ = 0;
  }

  std::vector<std::vector<Job>> chunks_;  ///< Each of kChunk places, which are filled in their order.
  std::vector<uint32_t> free_;
  JobSlots slots_;
  std::vector<JobId> ids_;  ///< Ascending; erased ones stay until compaction.
  std::set<JobId> late_;    ///< Ids inserted after a higher one; never erased.
  std::size_t erased_ = 0;
};

}  // namespace gpusched
