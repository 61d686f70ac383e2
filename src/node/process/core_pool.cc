#include "node/process/core_pool.h"

#include <algorithm>
#include <utility>

namespace gpusched {

CorePool::CorePool(std::vector<uint32_t> cores) : all_(std::move(cores)), free_(all_.begin(), all_.end()) {}

std::vector<uint32_t> CorePool::take(const AttemptKey& key, std::size_t count,
                                     const std::vector<uint32_t>& near) {
  if (const auto found = taken_.find(key); found != taken_.end()) return found->second;
  if (count == 0 || count > free_.size()) return {};
  std::vector<uint32_t> chosen;
  for (const uint32_t core : near) {
    if (chosen.size() < count && free_.contains(core)) chosen.push_back(core);
  }
  for (const uint32_t core : free_) {
    if (chosen.size() == count) break;
    if (std::find(chosen.begin(), chosen.end(), core) == chosen.end()) chosen.push_back(core);
  }
  std::sort(chosen.begin(), chosen.end());
  for (const uint32_t core : chosen) free_.erase(core);
  taken_[key] = chosen;
  return chosen;
}

void CorePool::keep(const AttemptKey& key, const std::vector<uint32_t>& cores) {
  std::vector<uint32_t>& kept = taken_[key];
  for (const uint32_t core : cores) {
    if (free_.erase(core) > 0) kept.push_back(core);
  }
}

void CorePool::give_back(const AttemptKey& key) {
  const auto found = taken_.find(key);
  if (found == taken_.end()) return;
  free_.insert(found->second.begin(), found->second.end());
  taken_.erase(found);
}

}  // namespace gpusched
