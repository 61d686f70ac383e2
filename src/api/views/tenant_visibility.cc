#include "api/views/tenant_visibility.h"

#include <algorithm>

#include "api/views/reader_clock.h"
#include "api/views/state_views.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Caller;
using access::Verdict;

bool sees_tenant(const Caller& caller, const State& state, const Tenant& tenant) {
  return decide(state, caller, Action::kSeeTenant, tenant) == Verdict::kAllowed;
}

/// The driver's message names processes of jobs.
void drop_message(DeviceView& device) {
  if (device.fault_detail.empty()) return;
  for (std::string* const text : {&device.detail, &device.quarantine_reason}) {
    const std::size_t at = text->find(", " + device.fault_detail);
    if (at != std::string::npos) text->erase(at, device.fault_detail.size() + 2);
  }
  device.fault_detail.clear();
}

/// How many jobs of everybody wait, which stands in brackets.
void drop_counts(std::string& message) {
  const std::size_t open = message.find(" (");
  const std::size_t close = message.find(')', open);
  if (open != std::string::npos && close != std::string::npos) message.erase(open, close + 1 - open);
}

}  // namespace

bool TenantVisibility::sees_jobs_of(TenantId tenant) {
  if (sees_all_) return true;
  const auto [at, is_new] = seen_.try_emplace(tenant);
  if (is_new) at->second = api::sees_jobs_of(state_, caller_, tenant);
  return at->second;
}

bool TenantVisibility::sees(JobId job) {
  if (sees_all_) return true;
  const Job* const found = state_.jobs.find(job);
  return found != nullptr && sees_jobs_of(found->tenant);
}

void TenantVisibility::conceal(NodeView& node) {
  if (sees_all_) return;
  for (DeviceView& device : node.devices) {
    drop_message(device);
    if (!sees(device.held_by)) device.held_by = JobId{};
    std::erase_if(device.shared_by, [this](JobId job) { return !sees(job); });
    std::erase_if(device.holders, [this](const HolderView& holder) { return !sees(holder.job); });
    for (SliceView& slice : device.slices) {
      if (!sees(slice.job)) slice.job = JobId{};
    }
  }
}

bool TenantVisibility::may_use(const Booking& booking) const {
  return std::ranges::any_of(caller_.bindings, [&](const Binding& binding) {
    const Tenant* const tenant = state_.find_tenant(binding.tenant);
    if (tenant == nullptr || !is_meaningful(binding)) return false;
    const TenantPosition position = position_of(state_, *tenant);
    return std::ranges::find(position.resource().tenant_path, booking.tenant) !=
           position.resource().tenant_path.end();
  });
}

void TenantVisibility::conceal(const Booking& booking, ReservationView& shown) {
  if (may_always(caller_, Action::kSeeTenant)) return;
  const Tenant* const tenant = state_.find_tenant(booking.tenant);
  if (tenant != nullptr && sees_tenant(caller_, state_, *tenant)) return;
  shown.tenant.clear();
  std::erase_if(shown.users, [this](const std::string& user) { return user != caller_.name; });
  if (tenant == nullptr || may_use(booking)) return;  // Nobody's, for maintenance, or its own to use.
  shown.name = shown.id;
  shown.reason.clear();
}

TenantView view_for(const Caller& caller, const State& state, const Tenant& tenant) {
  TenantView shown = view_of(tenant, reader_now(state));
  const Tenant* const above = state.find_tenant(tenant.parent);
  if (above != nullptr && !may_always(caller, Action::kSeeTenant) && !sees_tenant(caller, state, *above))
    shown.parent = TenantId{};
  return shown;
}

ClusterView cluster_for(const Caller& caller, const State& state, const TelemetryTable& telemetry) {
  ClusterView shown = cluster_of(state, telemetry);
  if (!may_always(caller, Action::kSeeJob)) {
    shown.paused_by.clear();
    shown.pause_reason.clear();
  }
  if (may_always(caller, Action::kSeeMetrics)) return shown;
  shown.total_jobs = shown.running_jobs = shown.pending_jobs = 0;
  for (const auto& [id, tenant] : state.tenants) {
    if (!api::sees_jobs_of(state, caller, id)) continue;
    const auto count = [&tenant](JobState in) { return tenant.state_counts[static_cast<std::size_t>(in)]; };
    for (const int64_t jobs : tenant.state_counts) shown.total_jobs += jobs;
    shown.running_jobs +=
        count(JobState::kScheduled) + count(JobState::kRunning) + count(JobState::kPreempted);
    shown.pending_jobs += tenant.waiting;
  }
  return shown;
}

bool may_describe(const State& state, const Caller& caller, const Job& job) {
  return decide(state, caller, Action::kDescribeJob, job) == Verdict::kAllowed;
}

ApiError to_api_error(const Caller& caller, const TenantPositions& positions, const Rejection& rejection,
                      std::size_t batch_size) {
  if (may_always(caller, Action::kSeeTenant)) return to_api_error(rejection, batch_size);
  Rejection shown = rejection;
  if (rejection.tenant.valid()) {
    const std::optional<TenantPosition> position = positions.find(rejection.tenant);
    if (!position || decide_access(caller, Action::kSeeTenant, position->resource()) != Verdict::kAllowed) {
      shown.tenant = TenantId{};
      shown.limit = shown.current = 0;
    }
  }
  // The answer does not tell whose it is, nor that it is anybody's.
  const bool is_of_booking =
      rejection.code == RejectionCode::kBookingDenied || rejection.code == RejectionCode::kBookingNotFound;
  if (is_of_booking) shown.code = RejectionCode::kBookingNotFound;
  ApiError error = to_api_error(shown, batch_size);
  if (rejection.code == RejectionCode::kThrottled) drop_counts(error.message);
  if (is_of_booking) {
    error.message =
        "no such reservation, or none that the job may use; `gpu-cli reservation list` shows the existing "
        "ones";
  }
  return error;
}

}  // namespace gpusched::api
