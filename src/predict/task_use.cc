#include "predict/task_use.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace gpusched::predict {
namespace {

constexpr int64_t kMemoryMbMax = int64_t{1} << 40;  // So that no product overflows.
constexpr int32_t kWhole = 1'000;

/// Up to a number of four binary digits.
int64_t rounded_up(int64_t mb) {
  const int digits = static_cast<int>(std::bit_width(static_cast<uint64_t>(mb)));
  const int64_t step = int64_t{1} << std::max(digits - 4, 0);
  return (mb + step - 1) / step * step;
}

}  // namespace

template <typename T>
void TaskUse::Ring<T>::push(const T& value, std::size_t window) {
  if (values.size() < window) {
    values.push_back(value);
    return;
  }
  values[next] = value;
  next = (next + 1) % window;
}

const TaskUse::Kind* TaskUse::find(uint64_t kind) const {
  const auto found = kinds_.find(kind);
  return found == kinds_.end() ? nullptr : &found->second;
}

TaskUse::Kind& TaskUse::kind_of(uint64_t kind) {
  const auto found = kinds_.find(kind);
  if (found != kinds_.end()) {
    by_use_.erase({found->second.used, kind});
  } else if (kinds_.size() >= options_.kinds_max) {
    kinds_.erase(by_use_.begin()->second);
    by_use_.erase(by_use_.begin());
  }
  Kind& line = kinds_[kind];
  line.used = ++uses_;
  by_use_.emplace(line.used, kind);
  return line;
}

void TaskUse::finished(uint64_t kind, const Seen& seen) {
  if (seen.memory_mb <= 0 && !seen.busy_per_mille) return;
  Kind& line = kind_of(kind);
  if (seen.memory_mb > 0) {
    const int64_t mb = std::min(seen.memory_mb, kMemoryMbMax);
    line.memory.push({.mb = seen.cut_off ? 2 * mb : mb, .cut_off = seen.cut_off}, options_.window);
    if (line.memory.values.size() >= options_.trusted_from) {
      const int64_t expected = expected_mb(line.memory);
      const bool stays = expected <= line.said_mb && line.said_mb <= expected + expected / 2;
      if (!stays) line.said_mb = rounded_up(expected);
    }
  }
  if (seen.busy_per_mille) line.busy.push(std::clamp(*seen.busy_per_mille, 0, kWhole), options_.window);
}

void TaskUse::forget(uint64_t kind) {
  const auto found = kinds_.find(kind);
  if (found == kinds_.end()) return;
  by_use_.erase({found->second.used, kind});
  kinds_.erase(found);
}

int64_t TaskUse::expected_mb(const Ring<Memory>& memory) const {
  std::vector<int64_t> sorted;
  int64_t least = 0;
  for (const Memory& seen : memory.values) {
    sorted.push_back(seen.mb);
    if (seen.cut_off) least = std::max(least, seen.mb);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto per_mille = static_cast<std::size_t>(options_.memory_per_mille);
  const std::size_t rank = std::max<std::size_t>((sorted.size() * per_mille + kWhole - 1) / kWhole, 1);
  const int64_t quantile = std::max(sorted[rank - 1], least);
  return quantile + std::max(quantile * options_.margin_per_mille / kWhole, options_.margin_mb_min);
}

std::optional<int64_t> TaskUse::memory_mb(uint64_t kind) const {
  const Kind* const line = find(kind);
  if (line == nullptr || line->said_mb == 0) return std::nullopt;
  return line->said_mb;
}

std::optional<int32_t> TaskUse::busy_per_mille(uint64_t kind) const {
  const Kind* const line = find(kind);
  if (line == nullptr || line->busy.values.size() < options_.trusted_from) return std::nullopt;
  const std::vector<int32_t>& seen = line->busy.values;
  const int64_t sum = std::accumulate(seen.begin(), seen.end(), int64_t{0});
  return static_cast<int32_t>(sum / static_cast<int64_t>(seen.size()));
}

}  // namespace gpusched::predict
