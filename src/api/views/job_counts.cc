#include "api/views/job_counts.h"

#include <algorithm>
#include <map>
#include <string>

namespace gpusched::api {

void JobCounts::count_in(Spread& spread, Duration span) {
  const double in_seconds = static_cast<double>(std::max<int64_t>(span.ns, 0)) * 1e-9;
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), in_seconds) - kBounds.begin();
  spread.buckets[static_cast<std::size_t>(bucket)] += 1;
  spread.sum += in_seconds;
  spread.count += 1;
}

void JobCounts::count_wait(const Job& job, Time placed) {
  const Duration wait = placed - job.submitted_at;
  count_in(latency_, wait);
  const bool has_room = waits_.size() < kTenantsMax || waits_.contains(job.tenant);
  Waits& waits = waits_[has_room ? job.tenant : TenantId{}];
  waits.count += 1;
  waits.seconds += static_cast<double>(std::max<int64_t>(wait.ns, 0)) * 1e-9;
}

void JobCounts::observe(const Observer::View& view, const Changes& changes) {
  for (const Event& event : changes.events) {
    if (const auto* submitted = std::get_if<JobSubmitted>(&event)) {
      if (!submitted->request.is_array()) count(JobState::kPending);  // Its elements are what is counted.
    } else if (std::holds_alternative<ElementAdded>(event)) {
      count(JobState::kPending);
    } else if (const auto* placed = std::get_if<AttemptPlaced>(&event)) {
      count(JobState::kScheduled);
      const Job* job = view.state.jobs.find(placed->job);
      if (placed->attempt == 1 && job != nullptr) count_wait(*job, placed->at);
    } else if (const auto* started = std::get_if<MemberStarted>(&event)) {
      // A member's start is the job's: parts of several members come later.
      if (started->member == 0) count(JobState::kRunning);
    } else if (const auto* finished = std::get_if<JobFinished>(&event)) {
      const Job* job = view.state.jobs.find(finished->job);
      if (job == nullptr || !job->is_array()) count(finished->state);
    } else if (const auto* stopped = std::get_if<StopRequested>(&event)) {
      if (stopped->reason == StopReason::kPreempt) count(JobState::kPreempted);
    } else if (const auto* over = std::get_if<PromiseEnded>(&event)) {
      if (over->asked_at.valid()) count_in(reclaims_, over->at - over->asked_at);
    } else if (std::holds_alternative<JobRequeued>(event)) {
      count(JobState::kPending);
    }
  }
}

void JobCounts::fill(MetricsView& metrics) const {
  for (const JobState state :
       {JobState::kPending, JobState::kScheduled, JobState::kRunning, JobState::kCompleted, JobState::kFailed,
        JobState::kCancelled, JobState::kPreempted}) {
    metrics.jobs.push_back({state, entered_[static_cast<std::size_t>(state)]});
  }
  metrics.latency_bounds.assign(kBounds.begin(), kBounds.end());
  metrics.latency_buckets.assign(latency_.buckets.begin(), latency_.buckets.end());
  metrics.latency_sum = latency_.sum;
  metrics.latency_count = latency_.count;
  metrics.reclaim_buckets.assign(reclaims_.buckets.begin(), reclaims_.buckets.end());
  metrics.reclaim_sum = reclaims_.sum;
  metrics.reclaim_count = reclaims_.count;
}

void JobCounts::fill_tenants(const State& state, MetricsView& metrics) const {
  std::map<std::string, Waits> by_name;  // Two tenants may have one name.
  for (const auto& [id, waits] : waits_) {
    const Tenant* const tenant = state.find_tenant(id);
    Waits& sum = by_name[tenant == nullptr || tenant->deleted ? "other" : tenant->name];
    sum.count += waits.count;
    sum.seconds += waits.seconds;
  }
  for (const auto& [name, waits] : by_name)
    metrics.counters.push_back({.name = "tenant_starts_total",
                                .type = "counter",
                                .help = "Jobs that were placed for the first time, by tenant.",
                                .value = waits.count,
                                .labels = {{"tenant", name}}});
  for (const auto& [name, waits] : by_name)
    metrics.counters.push_back({.name = "tenant_start_wait_seconds_total",
                                .type = "counter",
                                .help = "Time from submission to first placement of these jobs, by tenant.",
                                .labels = {{"tenant", name}},
                                .real = waits.seconds});
}

}  // namespace gpusched::api
