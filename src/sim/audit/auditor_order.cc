#include <algorithm>
#include <string>

#include "base/limits.h"
#include "base/overloaded.h"
#include "sim/audit/auditor.h"

// Checks that nobody is overtaken for longer than docs/policies.md says. Jobs that want the same of the same
// tenant differ only in their place in line, so one placed while another one waits has gone before it. This
// is for runs without reservations: with one, a shorter job may pass where it delays nobody.
// On a node that is booked soon, too, one that ends before may pass one that might not (docs/policies.md).
namespace gpusched::sim {
namespace {

/// Plans take so long to be made and made durable at most: a job counts as waiting only then.
constexpr Duration kPlanTime = seconds(5);

Time since_of(const Job& job) { return std::max(job.submitted_at, job.extras->preempted_at); }

/// A node of the placement is booked before the waiting job must have ended, which is why it stays off it.
/// One without a limit may be expected to take however long.
bool meets_booking(const State& state, const Job& waiting, const std::vector<Member>& members, Time at) {
  return std::any_of(members.begin(), members.end(), [&](const Member& member) {
    const Node* node = state.find_node(member.node);
    if (node == nullptr || node->booked_from == kNever) return false;
    return waiting.max_runtime.ns == 0 ||
           at + waiting.max_runtime + limits::kRuntimeSlack >= node->booked_from;
  });
}

}  // namespace

void Auditor::note_line(const Event& event, Time at) {
  const auto note = [&](JobId job) {
    line_since_[job] = at;
    lined_at_[job] = replica_.last.sequence;
  };
  std::visit(
      Overloaded{
          [&](const JobSubmitted& submitted) { note(submitted.job); },
          [&](const ElementAdded& added) { note(added.job); },
          [&](const BackoffEnded& over) { note(over.job); },
          [&](const JobHoldChanged& held) { note(held.job); },
          [&](const DependencySettled& settled) { note(settled.job); },
          [&](const JobUpdated& updated) { note(updated.change->job); },
          [&](const PromiseEnded& over) { note(over.job); },
          [&](const JobFinished& finished) {
            line_since_.erase(finished.job);
            lined_at_.erase(finished.job);
          },
          [&](const Configured&) {  // The order of jobs is another question from then on.
            for (auto& [job, since] : line_since_) since = at;
          },
          [&](const TenantUpdated& updated) {  // Nor by a tenant's new tier.
            if ((updated.change->given & kTenantPriorityTier) == 0) return;
            for (auto& [job, since] : line_since_) since = at;
          },
          Ignores<TenantCreated, TenantDeleted, NodeRegistered, NodeStateChanged, DeviceConditionChanged,
                  RequestRemembered, OldestRequestForgotten, AttemptPlaced, MemberStarted, StopRequested,
                  MemberEnded, AttemptAbandoned, JobRequeued, JobsForgotten, DeviceFreed, DeviceOccupied,
                  DeviceQuarantined, TimerDropped, NodeAvailabilityChanged, NodeLabeled, NodeFailureNoted,
                  TimeSkipped, DeviceBarred, ArrayClosed, DevicesPromised, JobCheckpointed, Admitted,
                  BookingMade, BookingBegan, BookingEnded, ShareFreed, DeviceHeatChanged, MemberPrepared,
                  DeviceFaultChanged, NodeSuspected, WatchdogFindingChanged, ElementUnparked,
                  RequestForgotten, NodeRemoved, TenantsForgotten, JobAsked, KeyCreated, KeyRevoked,
                  RoleBound, KeyForgotten, NodeTicketCreated, NodeTicketForgotten, NodeAdmitted, NodeRenewed,
                  NodeRevoked, PersonRecorded>{}},
      event);
}

/// Where it stands at the latest: a task may stand behind its place by the largest delay.
OrderKey Auditor::last_place_of(const Job& job) const {
  OrderKey place = job.order();
  if (tasks_ != nullptr && tasks_->reader->read(job.spec.view()).has_value())
    place.key -= tasks_->delay_max().ns * replica_.config.aging_per_hour / milliseconds(1).ns;
  return place;
}

/// By when it may be overtaken no more, by whom it is not behind in any case.
bool Auditor::must_go_first(const Job& waiting, const Job& placed, Time at) const {
  const SchedulingPolicy& policy = replica_.config.policy;
  const bool by_priority = policy.job_order.empty() || policy.job_order == "priority_aging";
  if (by_priority) return last_place_of(waiting) < placed.order();
  if (policy.overtaking.ns == 0) return false;
  const bool waited = since_of(waiting) + policy.overtaking + kPlanTime <= at;
  // Those who both waited for so long stand as they came.
  return waited && since_of(placed) + policy.overtaking > at;
}

void Auditor::check_overtaking(const AttemptPlaced& event) {
  if (replica_.config.policy.reservations != 0) return;
  const Job* placed = replica_.jobs.find(event.job);
  if (placed == nullptr) return;
  for (const auto& [id, since] : line_since_) {
    // One that stood in the same plan, and was not placed any more, was not passed over.
    if (since + kPlanTime > event.at || planned_.contains(id)) continue;
    const Job* waiting = replica_.jobs.find(id);
    if (waiting == nullptr || waiting->job_class != placed->job_class || !waiting->is_queued()) continue;
    if (meets_booking(replica_, *waiting, event.members, event.at)) continue;
    if (must_go_first(*waiting, *placed, event.at))
      fail(name_of(event.job) + " is placed before " + name_of(id) +
           ", which wants the same and stands before it");
  }
}

}  // namespace gpusched::sim
