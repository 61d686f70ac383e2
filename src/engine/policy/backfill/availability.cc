#include "engine/policy/backfill/availability.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::policy {

Availability::Availability(const PoolAmounts& capacity, const ReleaseTimeline& running, Time now) {
  PoolAmounts free = capacity - running.held_after(now);
  steps_.push_back({.from = now, .free = free});
  running.for_each_after(now, [&](const Release& release) {
    free += release.amounts;
    if (steps_.back().from == release.end) {
      steps_.back().free = free;
    } else {
      steps_.push_back({.from = release.end, .free = free});
    }
  });
}

// The step that covers `at`.
std::size_t Availability::step_at(Time at) const {
  CHECK(at >= steps_.front().from);
  const auto after = std::upper_bound(steps_.begin(), steps_.end(), at,
                                      [](Time time, const Step& step) { return time < step.from; });
  return static_cast<std::size_t>(after - steps_.begin()) - 1;
}

// The step that begins at `at`, made when there is none.
std::size_t Availability::split(Time at) {
  const std::size_t found = step_at(at);
  if (steps_[found].from == at) return found;
  const Step upper{.from = at, .free = steps_[found].free};
  steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(found) + 1, upper);
  return found + 1;
}

// Makes one step of `at` and the one before it when they are the same.
void Availability::join(std::size_t at) {
  if (at == 0 || at >= steps_.size() || !(steps_[at].free == steps_[at - 1].free)) return;
  steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Availability::take(Time begin, Time end, const PoolAmounts& amounts) {
  if (begin >= end) return;
  const std::size_t first = split(begin);
  const std::size_t last = end == kNever ? steps_.size() : split(end);
  for (std::size_t i = first; i < last; ++i) steps_[i].free -= amounts;
  join(last);
  join(first);
}

void Availability::give(Time begin, Time end, const PoolAmounts& amounts) {
  take(begin, end, PoolAmounts{} - amounts);
}

bool Availability::fits(Time begin, Time end, const PoolAmounts& amounts) const {
  if (begin >= end) return amounts.fits(steps_[step_at(begin)].free);
  for (std::size_t i = step_at(begin); i < steps_.size() && steps_[i].from < end; ++i) {
    if (!amounts.fits(steps_[i].free)) return false;
  }
  return true;
}

Time Availability::earliest_fit(Time from, Duration length, const PoolAmounts& amounts) const {
  Time begin = from;
  Time end = saturating_end(begin, length);
  bool open = false;  // `begin` is the start of a stretch in which it fits up to the present step.
  for (std::size_t i = step_at(from); i < steps_.size(); ++i) {
    if (open && steps_[i].from >= end) return begin;
    if (!amounts.fits(steps_[i].free)) {
      open = false;
      continue;
    }
    if (open) continue;
    open = true;
    begin = std::max(from, steps_[i].from);
    end = saturating_end(begin, length);
  }
  return open ? begin : kNever;
}

}  // namespace gpusched::policy
