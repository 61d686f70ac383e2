#include "api/backend/services/service_queues.h"

#include <algorithm>

#include "api/backend/services/service_labels.h"
#include "api/contract/spec_peek.h"

namespace gpusched::api {
namespace {

constexpr int kJobsPerStep = 10'000;  // A millisecond or two.

/// How many jobs that wait the job stands for.
int64_t waiting_jobs(const State& state, const Job& job) {
  if (job.state != JobState::kPending || job.held || job.not_before.valid() || job.unmet != 0) return 0;
  if (!job.is_array()) return 1;
  const JobArray* const array = state.find_array(job.id);
  // Its other elements are jobs of their own.
  return array != nullptr && array->closed == JobReason::kNone ? array->unexpanded() : 0;
}

bool is_in(const QueueKey& queue, const Job& job) {
  return job.tenant == queue.tenant && (!queue.owner || job.owner == *queue.owner) &&
         spec_has_label(job.spec.view(), queue.label, queue.value) && !mentions_service(job.spec.view());
}

}  // namespace

void ServiceQueues::follow(const QueueKey& queue, const ServiceKey& service) {
  queues_[queue].followers.insert(service);
}

void ServiceQueues::leave(const QueueKey& queue, const ServiceKey& service) {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return;
  at->second.followers.erase(service);
  if (at->second.followers.empty()) queues_.erase(at);
}

bool ServiceQueues::set(Queue& queue, JobId job, int64_t waiting) {
  const auto at = queue.jobs.find(job.value);
  const int64_t before = at == queue.jobs.end() ? 0 : at->second;
  if (before == waiting) return false;
  queue.waiting += waiting - before;
  if (waiting == 0) {
    queue.jobs.erase(at);
  } else {
    queue.jobs[job.value] = waiting;
  }
  return true;
}

void ServiceQueues::note(const State& state, JobId id, std::set<ServiceKey>& touched) {
  const Job* const job = state.jobs.find(id);
  const int64_t waiting = job == nullptr ? 0 : waiting_jobs(state, *job);
  auto at = job == nullptr ? queues_.begin() : queues_.lower_bound(QueueKey{.tenant = job->tenant});
  for (; at != queues_.end() && (job == nullptr || at->first.tenant == job->tenant); ++at) {
    auto& [key, queue] = *at;
    if (waiting == 0 && !queue.jobs.contains(id.value)) continue;
    const bool changed = set(queue, id, waiting != 0 && is_in(key, *job) ? waiting : 0);
    if (changed && queue.is_counted) touched.insert(queue.followers.begin(), queue.followers.end());
  }
}

std::optional<int64_t> ServiceQueues::waiting(const QueueKey& queue) const {
  const auto at = queues_.find(queue);
  return at != queues_.end() && at->second.is_counted ? std::optional(at->second.waiting) : std::nullopt;
}

std::optional<uint64_t> ServiceQueues::begin_count(const QueueKey& queue) {
  const auto at = queues_.find(queue);
  if (at == queues_.end() || at->second.count != 0) return std::nullopt;
  at->second.count = ++counts_;
  return at->second.count;
}

bool ServiceQueues::count_some(const State& state, uint64_t count, std::set<ServiceKey>& touched) {
  const auto at =
      std::ranges::find_if(queues_, [count](const auto& one) { return one.second.count == count; });
  if (at == queues_.end()) return false;  // Nobody follows it any more.
  auto& [key, queue] = *at;
  int left = kJobsPerStep;
  state.jobs.for_each_newest_first(queue.counted_to, [&](const Job& job) {
    if (left == 0) return false;
    left -= 1;
    queue.counted_to = job.id;
    if (const int64_t waiting = waiting_jobs(state, job); waiting != 0 && is_in(key, job))
      set(queue, job.id, waiting);
    return true;
  });
  if (left == 0) return true;
  queue.is_counted = true;
  touched.insert(queue.followers.begin(), queue.followers.end());
  return false;
}

}  // namespace gpusched::api
