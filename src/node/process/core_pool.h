#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"

namespace gpusched {

/// The cores that each attempt has for itself. An attempt that comes when too few are left gets none, and
/// runs on whatever core is idle. Not thread-safe.
class CorePool {
 public:
  /// `cores`: all that may be given, in ascending order.
  explicit CorePool(std::vector<uint32_t> cores);

  /// `count` free cores, if possible out of `near`, neighbours rather than scattered; ascending. Empty: too
  /// few are free. An attempt that has cores keeps them.
  std::vector<uint32_t> take(const AttemptKey& key, std::size_t count, const std::vector<uint32_t>& near);
  /// As an earlier agent gave them.
  void keep(const AttemptKey& key, const std::vector<uint32_t>& cores);
  void give_back(const AttemptKey& key);

  std::size_t free_count() const { return free_.size(); }
  const std::vector<uint32_t>& all() const { return all_; }

 private:
  std::vector<uint32_t> all_;
  std::set<uint32_t> free_;
  std::map<AttemptKey, std::vector<uint32_t>> taken_;
};

}  // namespace gpusched
