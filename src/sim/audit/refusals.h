#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "base/time.h"

namespace gpusched::sim {

/// The auditor's books of the nodes that did not start one job. Each refusal keeps the job from its node: the
/// first for half a minute, each further one twice as long as the one before, and none over five minutes.
class Refusals {
 public:
  void note(const std::string& node, Time at) {
    Entry& entry = entries_[node];
    if (entry.until > at) return;  // Another member of the same attempt was on it.
    entry.until = at + seconds(std::min(300, 30 << std::min(entry.count, 10)));
    ++entry.count;
  }
  bool forbid(const std::string& node, Time at) const {
    const auto entry = entries_.find(node);
    return entry != entries_.end() && at < entry->second.until;
  }

 private:
  struct Entry {
    Time until;
    int count = 0;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace gpusched::sim
