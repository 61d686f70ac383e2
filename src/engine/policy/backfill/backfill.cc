#include "engine/policy/backfill/backfill.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace gpusched::policy {

BackfillPass::BackfillPass(const Setup& setup)
    : capacity_(setup.capacity),
      running_(setup.running),
      now_(setup.now),
      reservations_max_(setup.reservations_max) {
  CHECK(running_ != nullptr);
  free_ = capacity_ - running_->held_after(now_);
  // A promise binds from the first offer on: also what fits now must not run into it.
  if (uses_profile() && !setup.promises.empty()) keep(setup.promises);
}

// Puts the earlier promises into the profile as they were. One that no longer fits there is dropped: running
// work overran its estimate, or the pool shrank.
void BackfillPass::keep(std::span<const Reservation> promises) {
  profile_.emplace_back(capacity_, *running_, now_);
  Availability& profile = profile_.front();
  for (const Reservation& promise : promises) {
    if (kept_.size() >= reservations_max_) break;
    const Time start = std::max(promise.start, now_);
    const Time end = saturating_end(start, promise.estimate);
    if (!profile.fits(start, end, promise.amounts)) continue;
    profile.take(start, end, promise.amounts);
    kept_.push_back(promise);
    kept_.back().start = start;
  }
}

Offer BackfillPass::offer(const Waiting& work) {
  CHECK(work.estimate.ns >= 0);
  if (!work.amounts.fits(capacity_)) return {.verdict = Verdict::kTooLarge};
  return uses_profile() ? offer_profile(work) : offer_easy(work);
}

Offer BackfillPass::start(const Waiting& work) {
  free_ -= work.amounts;
  running_->add({.end = saturating_end(now_, work.estimate), .id = work.id, .amounts = work.amounts});
  return {.verdict = Verdict::kStart, .start = now_};
}

Offer BackfillPass::offer_easy(const Waiting& work) {
  const bool fits_now = work.amounts.fits(free_);
  if (given_.empty()) {
    if (fits_now) return start(work);
    blocked_ = true;
    if (!reserving()) return {};
    const Shadow shadow = running_->shadow(capacity_, work.amounts, now_);
    CHECK(shadow.at != kNever);  // It fits the capacity.
    shadow_ = shadow.at;
    extra_ = shadow.free - work.amounts;
    given_.push_back({.id = work.id, .start = shadow_, .amounts = work.amounts, .estimate = work.estimate});
    return {.verdict = Verdict::kReserved, .start = shadow_};
  }
  if (!fits_now) return {};
  if (saturating_end(now_, work.estimate) <= shadow_) return start(work);
  // It will still be there when the reserved work starts: only beside it.
  if (!work.amounts.fits(extra_)) return {};
  extra_ -= work.amounts;
  return start(work);
}

Offer BackfillPass::offer_profile(const Waiting& work) {
  if (profile_.empty()) {
    if (work.amounts.fits(free_)) return start(work);
    profile_.emplace_back(capacity_, *running_, now_);
  }
  Availability& profile = profile_.front();
  const auto kept =
      std::find_if(kept_.begin(), kept_.end(), [&](const Reservation& r) { return r.id == work.id; });
  const bool promised = kept != kept_.end();
  if (promised) {
    profile.give(kept->start, saturating_end(kept->start, kept->estimate), kept->amounts);
    kept_.erase(kept);
  }
  const Time end_if_now = saturating_end(now_, work.estimate);
  if (work.amounts.fits(free_) && profile.fits(now_, end_if_now, work.amounts)) {
    profile.take(now_, end_if_now, work.amounts);
    return start(work);
  }
  blocked_ = true;
  // A place kept for a promise is not given to another.
  if (!promised && !reserving()) return {};
  const Time at = profile.earliest_fit(now_, work.estimate, work.amounts);
  if (at == kNever) return {};
  profile.take(at, saturating_end(at, work.estimate), work.amounts);
  given_.push_back({.id = work.id, .start = at, .amounts = work.amounts, .estimate = work.estimate});
  return {.verdict = Verdict::kReserved, .start = at};
}

std::vector<uint32_t> shortest_first(std::span<const Duration> estimates) {
  std::vector<uint32_t> order(estimates.size());
  std::iota(order.begin(), order.end(), 0u);
  // By place among equals: as a stable sort, whose library form asks for what clang calls deprecated.
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return estimates[a] != estimates[b] ? estimates[a] < estimates[b] : a < b;
  });
  return order;
}

}  // namespace gpusched::policy
