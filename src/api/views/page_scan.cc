#include "api/views/page_scan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"
#include "base/limits.h"
#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

constexpr int64_t kShownWork = 16;  // Showing a job costs as much as looking at so many.

}  // namespace

void PageScan::begin(const Observer::View& view) {
  begun_ = true;
  skip_ = filter_.offset;
  last_ = told_ = filter_.before;
  const State& state = view.state;
  const Tenant* tenant = tenant_.valid() ? state.find_tenant(tenant_) : nullptr;
  const int64_t* counts = tenant != nullptr ? tenant->state_counts : state.state_counts;
  const auto count_of = [this](const int64_t* by_state) {
    return filter_.state ? by_state[static_cast<std::size_t>(*filter_.state)]
                         : std::accumulate(by_state, by_state + kJobStateCount, int64_t{0});
  };
  total_ = count_of(counts);
  for (const auto& [id, other] : state.tenants) {
    const bool counted = tenant == nullptr || tenant == &other;
    if (!sees_all_ && counted && !may_see(state, id)) total_ -= count_of(other.state_counts);
  }
  complete_ = filter_.limit == 0 || total_ == 0 || filter_.offset >= total_;
}

/// Jobs come in runs of one tenant's.
bool PageScan::may_see(const State& state, TenantId tenant) {
  if (sees_all_) return true;
  if (asked_ != tenant) {
    asked_ = tenant;
    seen_ = sees_jobs_of(state, *caller_, tenant);
  }
  return seen_;
}

bool PageScan::full() const {
  return static_cast<int64_t>(page_.jobs.size()) >= filter_.limit ||
         (filter_.looks_inside() && looked_ >= looked_max_);
}

/// False once nothing more is to be looked at: in this step, or at all.
bool PageScan::look_at(const Observer::View& view, const Job& job) {
  // Jobs are numbered as they come: every older one was submitted before.
  if (filter_.since.valid() && job.submitted_at < filter_.since) {
    complete_ = true;
    return false;
  }
  if (work_left_ <= 0) return false;
  last_ = job.id;
  work_left_ -= 1;
  // Where a page ends, and whether another follows, says nothing of jobs that are hidden.
  const bool is_other = tenant_.valid() && job.tenant != tenant_;
  if (!sees_all_ && (is_other || !may_see(view.state, job.tenant))) return true;
  if (full()) {
    page_.next = told_;
    complete_ = true;
    return false;
  }
  told_ = job.id;
  looked_ += 1;
  if (is_other) return true;
  if (filter_.state && job.state != *filter_.state) return true;
  if (filter_.looks_inside() && !matches(view.state, job, filter_)) return true;
  if (!sees_all_ && filter_.asks_for_description() && !may_describe(view.state, *caller_, job)) return true;
  found_ += 1;
  if (skip_ > 0) {
    skip_ -= 1;
  } else {
    page_.jobs.push_back(view_of(view, job, viewer_, filter_.details));
    conceal(view.state, *caller_, job, page_.jobs.back());
    work_left_ -= kShownWork;
  }
  // When all were seen that match, nothing follows.
  complete_ = !filter_.looks_inside() && !filter_.before.valid() && found_ >= total_;
  return !complete_;
}

bool PageScan::over_active(const Observer::View& view) {
  // Only what holds something can be in these states, and that is a short list.
  std::vector<JobId> active;
  for (const auto& [key, attempt] : view.state.attempts) active.push_back(attempt.job);
  std::sort(active.begin(), active.end(), std::greater<>());
  active.erase(std::unique(active.begin(), active.end()), active.end());
  for (const JobId id : active) {
    const Job* job = view.state.jobs.find(id);
    if (job == nullptr || (last_.valid() && id >= last_)) continue;
    if (!look_at(view, *job)) return !complete_;
  }
  return false;
}

/// In one step, since places change between two; a look at a job is cheap, and the line's end is the bound.
void PageScan::over_line(const Observer::View& view) {
  complete_ = true;
  if (sees_all_ && !tenant_.valid() && !filter_.looks_inside())
    total_ = static_cast<int64_t>(view.state.line.size());
  for (auto at = view.state.line.begin(); !at.at_end() && !full(); at.next()) {
    if (sees_all_ && !tenant_.valid() && !filter_.looks_inside() && skip_ > 0) {
      skip_ -= 1;
      continue;
    }
    const Job& job = view.state.job_at((*at).job);
    if (tenant_.valid() && job.tenant != tenant_) continue;
    if (!may_see(view.state, job.tenant)) continue;
    looked_ += 1;
    if (filter_.looks_inside() && !matches(view.state, job, filter_)) continue;
    if (!sees_all_ && filter_.asks_for_description() && !may_describe(view.state, *caller_, job)) continue;
    if (skip_ > 0) {
      skip_ -= 1;
      continue;
    }
    page_.jobs.push_back(view_of(view, job, viewer_, filter_.details));
    conceal(view.state, *caller_, job, page_.jobs.back());
  }
}

bool PageScan::step(const Observer::View& view) {
  if (!begun_) begin(view);
  if (complete_) return false;
  if (filter_.in_line) {
    over_line(view);
    return false;
  }
  work_left_ = limits::kScanStepJobs;
  asked_ = {};  // A tenant may have been opened or closed.
  if (filter_.state == JobState::kScheduled || filter_.state == JobState::kRunning ||
      filter_.state == JobState::kPreempted) {
    return over_active(view);
  }
  bool stopped = false;
  view.state.jobs.for_each_newest_first(last_, [&](const Job& job) {
    stopped = !look_at(view, job);
    return !stopped;
  });
  return stopped && !complete_;
}

JobPage PageScan::take() && {
  if (!filter_.looks_inside()) page_.total = total_;
  return std::move(page_);
}

}  // namespace gpusched::api
