#include "engine/engine.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/overloaded.h"
#include "engine/decide/decide.h"

namespace gpusched {
namespace {

/// Applies the events from `begin` on, and ends what was promised and can no longer be kept.
void evolve_from(State& state, Events& events, std::size_t begin, Time at) {
  for (std::size_t i = begin; i < events.size(); ++i) evolve(state, events[i]);
  if (begin == events.size()) return;
  while (!state.promises.empty()) {
    const std::size_t before = events.size();
    if (!rules::end_broken_promises(state, at, events)) return;
    for (std::size_t i = before; i < events.size(); ++i) evolve(state, events[i]);
  }
}

}  // namespace

Applied decide(const State& state, const Command& command, Stamp stamp, Events& events) {
  return std::visit(
      Overloaded{
          [&](const Configure& c) { return rules::configure(state, c, stamp, events); },
          [&](const AdvanceTime&) {
            rules::next_due(state, stamp.at, events);
            return Applied{};
          },
          [&](const CreateTenant& c) { return rules::create_tenant(state, c, stamp, events); },
          [&](const UpdateTenant& c) { return rules::update_tenant(state, c, stamp, events); },
          [&](const DeleteTenant& c) { return rules::delete_tenant(state, c, stamp, events); },
          [&](const RegisterNode& c) { return rules::register_node(state, c, stamp, events); },
          [&](const NodeLeaseLost& c) { return rules::node_lease_lost(state, c, stamp, events); },
          [&](const NodeLeaseBack& c) { return rules::node_lease_back(state, c, stamp, events); },
          [&](const RemoveNode& c) { return rules::remove_node(state, c, stamp, events); },
          [&](const ConfirmNodeDead& c) { return rules::confirm_node_dead(state, c, stamp, events); },
          [&](const SetDeviceCondition& c) { return rules::set_device_condition(state, c, stamp, events); },
          [&](const NoteDeviceHeat& c) { return rules::note_device_heat(state, c, events); },
          [&](const NoteDeviceFault& c) { return rules::note_device_fault(state, c, stamp, events); },
          [&](const ReportWatchdogFinding& c) { return rules::note_watch(state, c, stamp, events); },
          [&](const MakeBooking& c) { return rules::make_booking(state, c, stamp, events); },
          [&](const CancelBooking& c) { return rules::cancel_booking(state, c, stamp, events); },
          [&](const SubmitJobs& c) { return rules::submit_jobs(state, c, stamp, events); },
          [&](const CancelJob& c) { return rules::cancel_job(state, c, stamp, events); },
          [&](const CommitPlan& c) {
            for (const PlanGroup& group : c.groups) rules::plan_group(state, group, stamp, events);
            return Applied{};
          },
          [&](const AttemptPrepared& c) { return rules::attempt_prepared(state, c, events); },
          [&](const AttemptStarted& c) { return rules::attempt_started(state, c, stamp, events); },
          [&](const AttemptEnded& c) { return rules::attempt_ended(state, c, stamp, events); },
          [&](const DeviceReleased& c) { return rules::device_released(state, c, events); },
          [&](const DeviceStillBusy& c) { return rules::device_still_busy(state, c, stamp, events); },
          [&](const UpdateJob& c) { return rules::update_job(state, c, stamp, events); },
          [&](const HoldJob& c) { return rules::hold_job(state, c, stamp, events); },
          [&](const RequeueJob& c) { return rules::requeue_job(state, c, stamp, events); },
          [&](const SetNodeAvailability& c) { return rules::set_node_availability(state, c, stamp, events); },
          [&](const NodeValidated& c) { return rules::node_validated(state, c, stamp, events); },
          [&](const LabelNode& c) { return rules::label_node(state, c, events); },
          [&](const NoteStart&) { return rules::note_start(state, stamp, events); },
          [&](const CheckpointSaved& c) { return rules::checkpoint_saved(state, c, stamp, events); },
          [&](const SetPools& c) { return rules::set_pools(state, c, stamp, events); },
          [&](const PauseStarts& c) { return rules::pause_starts(state, c, stamp, events); },
          [&](const MoveJobs& c) { return rules::move_jobs(state, c, stamp, events); },
          [&](const CreateKey& c) { return rules::create_key(state, c, stamp, events); },
          [&](const RevokeKey& c) { return rules::revoke_key(state, c, stamp, events); },
          [&](const BindRole& c) { return rules::bind_role(state, c, stamp, events); },
          [&](const RecordPerson& c) { return rules::record_person(state, c, stamp, events); },
          [&](const CreateNodeTicket& c) { return rules::create_node_ticket(state, c, stamp, events); },
          [&](const AdmitNode& c) { return rules::admit_node(state, c, stamp, events); },
          [&](const RevokeNode& c) { return rules::revoke_node(state, c, stamp, events); },
      },
      command);
}

const RememberedRequest* remembered_request(const State& state, const SubmitJobs& command) {
  const uint32_t owner = state.owners.find(command.owner_kind, command.owner);
  if (owner != OwnerTable::kNobody) {
    const RememberedRequest* own = state.find_request(command.tenant, owner, command.request_key);
    if (own != nullptr) return own;
  }
  // Requests remembered before feature level 9 have no owner, and are answered again as they were then.
  return state.find_request(command.tenant, OwnerTable::kNobody, command.request_key);
}

Applied apply(State& state, const Command& command, Stamp stamp, Events& events) {
  CHECK(stamp.sequence == state.last.sequence + 1);
  CHECK(stamp.at >= state.last.at);
  std::size_t begin = events.size();
  Applied applied;
  if (const auto* plan = std::get_if<CommitPlan>(&command)) {
    // Group after group, so that two that each fit but not together do not both start.
    for (const PlanGroup& group : plan->groups) {
      if (!rules::plan_group(state, group, stamp, events)) continue;
      evolve_from(state, events, begin, stamp.at);
      begin = events.size();
    }
  } else if (std::holds_alternative<AdvanceTime>(command)) {
    // One thing after the other, so that each is decided on the state that the one before left.
    for (uint32_t i = 0; i < limits::kForgottenPerCommand && rules::next_due(state, stamp.at, events); ++i) {
      evolve_from(state, events, begin, stamp.at);
      begin = events.size();
    }
  } else {
    applied = decide(state, command, stamp, events);
    CHECK(!applied.rejection.has_value() || events.size() == begin);
    evolve_from(state, events, begin, stamp.at);
  }
  state.last = {.sequence = stamp.sequence + sequence_count(command) - 1, .at = stamp.at};
  return applied;
}

void follow(State& state, const Event* events, std::size_t count, Stamp last) {
  for (std::size_t i = 0; i < count; ++i) evolve(state, events[i]);
  CHECK(last >= state.last);
  state.last = last;
}

}  // namespace gpusched
