#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"

namespace gpusched {

/// Position of a waiting job: the higher key first, then the older job.
struct OrderKey {
  int64_t key = 0;
  JobId job;

  /// Less means earlier in line.
  friend std::strong_ordering operator<=>(const OrderKey& a, const OrderKey& b) {
    if (a.key != b.key) return a.key > b.key ? std::strong_ordering::less : std::strong_ordering::greater;
    return a.job <=> b.job;
  }
  friend bool operator==(const OrderKey&, const OrderKey&) = default;
};

/// Waiting jobs in line, in sorted blocks: 16 bytes a job, O(log n) to insert and erase, and a job's place
/// in line by summing block sizes. Not thread-safe.
class OrderedJobs {
 public:
  /// `key` must not be in line yet.
  void insert(const OrderKey& key);
  /// `key` must be in line.
  void erase(const OrderKey& key);
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// The first in line. Not when empty.
  const OrderKey& front() const;
  /// Returns how many precede `key`, which need not be queued itself.
  std::size_t rank(const OrderKey& key) const;

  /// Walks in line; any insert or erase ends its validity.
  class Cursor {
   public:
    explicit Cursor(const OrderedJobs& jobs) : jobs_(&jobs) {}
    bool at_end() const { return block_ >= jobs_->blocks_.size(); }
    const OrderKey& operator*() const { return jobs_->blocks_[block_].entries[index_]; }
    void next() {
      if (++index_ < jobs_->blocks_[block_].entries.size()) return;
      index_ = 0;
      ++block_;
    }

   private:
    const OrderedJobs* jobs_;
    std::size_t block_ = 0;
    std::size_t index_ = 0;
  };
  Cursor begin() const { return Cursor(*this); }

 private:
  static constexpr std::size_t kBlockMax = 256;
  struct Block {
    OrderKey first;  ///< The first of `entries`: blocks are searched without looking into them.
    std::vector<OrderKey> entries;  ///< Never empty.
  };
  std::size_t block_of(const OrderKey& key) const;

  std::vector<Block> blocks_;
  std::size_t size_ = 0;
};

}  // namespace gpusched
