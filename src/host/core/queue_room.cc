#include "host/core/queue_room.h"

#include <algorithm>
#include <variant>

#include "base/limits.h"
#include "engine/engine.h"

namespace gpusched {
namespace {

/// Places that a submission takes, as the engine counts them: of an array its elements.
int64_t places_of(const SubmitJobs& command) {
  int64_t places = 0;
  for (const JobRequest& job : command.jobs)
    places += std::max<int64_t>(int64_t{job.sequence_count()} - 1, 1);
  return places;
}

}  // namespace

QueueRoom::QueueRoom(const State& state) {
  for (const auto& [id, tenant] : state.tenants) {
    if (tenant.anonymous && tenant.waiting > 0) open_.insert(id);
  }
}

void QueueRoom::begin_group() {
  group_jobs_ = 0;
  group_jobs_of_.clear();
  open_.insert(opened_.begin(), opened_.end());
  opened_.clear();
  is_counted_ = false;
}

std::optional<Rejection> QueueRoom::take(const State& state, const Command& command) {
  if (const auto* update = std::get_if<UpdateTenant>(&command)) {
    if ((update->given & kTenantAnonymous) != 0) opened_.push_back(update->tenant);
    return std::nullopt;
  }
  const auto* submit = std::get_if<SubmitJobs>(&command);
  const Tenant* const tenant = submit == nullptr ? nullptr : state.find_tenant(submit->tenant);
  if (tenant == nullptr) return std::nullopt;  // The engine refuses a submission to no tenant.
  // A repeated submission is only answered again.
  if (!submit->request_key.empty() && remembered_request(state, *submit) != nullptr) return std::nullopt;
  const int64_t jobs = places_of(*submit);
  const int64_t all = state.config.queue_size_max;
  const int64_t waiting = state.waiting_count() + group_jobs_;
  if (waiting + jobs > all) return std::nullopt;
  const TenantId holder = state.spec_holder(*tenant);
  const int64_t left = all - waiting - jobs;
  // Up to half of the places it does not matter whose jobs wait.
  if (waiting + jobs > left) {
    const int64_t held = held_by(state, holder);
    const bool is_first = held == 0 && jobs == 1;
    if (held + jobs > left && !is_first) {
      return Rejection{.code = RejectionCode::kQueueFull,
                       .requested = jobs,
                       .limit = all,
                       .current = held,
                       .retry_after = jobs > all - jobs ? Duration{} : limits::kQueueFullRetry};
    }
  }
  group_jobs_ += jobs;
  group_jobs_of_[holder] += jobs;
  if (tenant->anonymous) opened_.push_back(tenant->id);
  return std::nullopt;
}

int64_t QueueRoom::held_by(const State& state, TenantId holder) {
  count_open(state);
  const auto in_group = group_jobs_of_.find(holder);
  const int64_t under_way = in_group == group_jobs_of_.end() ? 0 : in_group->second;
  if (!holder.valid()) return open_jobs_ + under_way;
  const Tenant* const top = state.find_tenant(holder);
  const auto below = open_jobs_below_.find(holder);
  return (top == nullptr ? 0 : state.waiting_count(*top)) -
         (below == open_jobs_below_.end() ? 0 : below->second) + under_way;
}

void QueueRoom::count_open(const State& state) {
  if (is_counted_) return;
  is_counted_ = true;
  open_jobs_ = 0;
  open_jobs_below_.clear();
  for (auto at = open_.begin(); at != open_.end();) {
    const Tenant* const tenant = state.find_tenant(*at);
    if (tenant == nullptr || !tenant->anonymous || tenant->waiting == 0) {
      at = open_.erase(at);
      continue;
    }
    open_jobs_ += tenant->waiting;
    open_jobs_below_[state.root_of(tenant->id)] += tenant->waiting;
    ++at;
  }
}

}  // namespace gpusched
