#pragma once

#include <algorithm>
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>

#include "base/check.h"
#include "base/ids.h"

namespace gpusched {

/// Where each job is: from its id to a slot. Ids of neighbours share an entry of the hash table, because jobs
/// that come together are looked up together: some 9 bytes a job, and one cache miss for all of an entry. Not
/// thread-safe.
class JobSlots {
 public:
  /// `id` must not be there.
  void insert(JobId id, uint32_t slot) {
    CHECK(slot != kNone);
    uint32_t& place = pages_[id.value / kPage].at(id);
    CHECK(place == kNone);
    place = slot;
    ++size_;
  }
  std::optional<uint32_t> find(JobId id) const {
    const auto page = pages_.find(id.value / kPage);
    if (page == pages_.end()) return std::nullopt;
    const uint32_t slot = page->second.slots[id.value % kPage];
    return slot == kNone ? std::nullopt : std::optional(slot);
  }
  bool contains(JobId id) const { return find(id).has_value(); }
  /// `id` must be there.
  void erase(JobId id) {
    const auto page = pages_.find(id.value / kPage);
    CHECK(page != pages_.end());
    uint32_t& place = page->second.at(id);
    CHECK(place != kNone);
    place = kNone;
    --size_;
    if (page->second.empty()) pages_.erase(page);
  }
  std::size_t size() const { return size_; }
  /// For so many jobs whose ids follow each other.
  void reserve(std::size_t count) { pages_.reserve(count / kPage + 1); }

 private:
  static constexpr std::size_t kPage = 16;
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Page {
    std::array<uint32_t, kPage> slots;

    Page() { slots.fill(kNone); }
    uint32_t& at(JobId id) { return slots[id.value % kPage]; }
    bool empty() const {
      return std::all_of(slots.begin(), slots.end(), [](uint32_t slot) { return slot == kNone; });
    }
  };

  boost::unordered_flat_map<uint64_t, Page> pages_;
  std::size_t size_ = 0;
};

}  // namespace gpusched
