#include "api/doors/allocation/lease_desk.h"

#include <utility>

#include "access/access.h"
#include "api/contract/names.h"
#include "api/doors/allocation/allocation_errors.h"
#include "api/doors/allocation/allocation_json.h"
#include "api/doors/pages.h"
#include "base/job_labels.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kLaneMax = 1'000;

}  // namespace

struct LeaseDesk::Asked {
  CallerPtr caller;
  SubmitRequest request;
  Done<Submitted> done;
  TenantId tenant = {};
  int64_t gpus_left = 0;  ///< Of the quota, beside what is held and waits.
};

void LeaseDesk::allocate(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) {
  const std::string home = tenant_name(access::home_tenant(*caller));
  const auto asked = std::make_shared<Asked>(
      Asked{.caller = caller, .request = std::move(request), .done = std::move(done)});
  backend_.get_tenant(caller, home, [this, asked](Answer<TenantView> tenant) {
    if (!tenant) return asked->done(tenant.error());
    asked->request.tenant = tenant_name(tenant->id);
    enter(asked, tenant->id);
  });
}

void LeaseDesk::enter(const AskedPtr& asked, TenantId tenant) {
  asked->tenant = tenant;
  {
    const std::lock_guard lock(mutex_);
    const auto [lane, first] = lanes_.try_emplace(tenant);
    if (!first && lane->second.size() < kLaneMax) return lane->second.push_back(asked);
    if (!first) tenant = TenantId{};
  }
  if (tenant.valid()) return check_quota(asked);
  asked->done(
      ApiError{.kind = ErrorKind::kThrottled,
               .message = "too many allocations of the organization wait for their turn; try again later",
               .retry_after = seconds(1)});
}

void LeaseDesk::leave(TenantId tenant) {
  AskedPtr next;
  {
    const std::lock_guard lock(mutex_);
    const auto lane = lanes_.find(tenant);
    CHECK(lane != lanes_.end());
    if (lane->second.empty()) {
      lanes_.erase(lane);
      return;
    }
    next = std::move(lane->second.front());
    lane->second.pop_front();
  }
  check_quota(next);
}

void LeaseDesk::check_quota(const AskedPtr& asked) {
  backend_.get_tenant(asked->caller, asked->request.tenant, [this, asked](Answer<TenantView> tenant) {
    if (!tenant) return finish(asked, tenant.error());
    if (!tenant->settings.max_gpus) return submit(asked);
    const int64_t held = tenant->current_gpus + (tenant->current_gpu_milli + 999) / 1'000;
    asked->gpus_left = *tenant->settings.max_gpus - held - asked->request.jobs.front().gpu_count;
    if (asked->gpus_left < 0) return check_known(asked);
    count_waiting(asked, JobId{});
  });
}

void LeaseDesk::count_waiting(const AskedPtr& asked, JobId before) {
  JobFilter filter;
  filter.tenant = asked->request.tenant;
  filter.state = JobState::kPending;
  filter.limit = kPageMax;
  filter.before = before;
  filter.labels = {{std::string(kLeaseLabel), std::nullopt}};
  filter.details = {.name = false, .message = false, .place = false, .gpus = false};
  backend_.list_jobs(asked->caller, std::move(filter), [this, asked](Answer<JobPage> page) {
    if (!page) return finish(asked, page.error());
    for (const JobView& job : page->jobs) asked->gpus_left -= job.gpu_count;
    if (asked->gpus_left < 0) return check_known(asked);
    if (page->next.valid()) return count_waiting(asked, page->next);
    submit(asked);
  });
}

void LeaseDesk::check_known(const AskedPtr& asked) {
  const ApiError refused{ErrorKind::kQuotaExceeded, std::string(kGpuQuotaReached), "count"};
  if (asked->request.request_key.empty()) return finish(asked, refused);
  JobFilter filter;
  filter.tenant = asked->request.tenant;
  filter.labels = {{std::string(kLeaseRequestLabel), request_label(asked->request.request_key)}};
  filter.details = {.name = false, .message = false, .place = false, .gpus = false};
  backend_.list_jobs(asked->caller, std::move(filter), [this, asked, refused](Answer<JobPage> page) {
    if (!page) return finish(asked, page.error());
    if (page->jobs.empty()) return finish(asked, refused);
    submit(asked);  // The answer is the one that was given then.
  });
}

void LeaseDesk::submit(const AskedPtr& asked) {
  backend_.submit(asked->caller, std::move(asked->request),
                  [this, asked](Answer<Submitted> answer) { finish(asked, std::move(answer)); });
}

void LeaseDesk::finish(const AskedPtr& asked, Answer<Submitted> answer) {
  const Done<Submitted> done = std::move(asked->done);
  const TenantId tenant = asked->tenant;
  done(std::move(answer));
  leave(tenant);
}

}  // namespace gpusched::api
