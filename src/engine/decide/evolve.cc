#include <algorithm>
#include <bit>
#include <span>

#include "base/check.h"
#include "base/limits.h"
#include "base/text/task_payload.h"
#include "engine/decide/black_hole.h"
#include "engine/decide/decide.h"
#include "engine/decide/note_job.h"
#include "engine/engine.h"
#include "model/topology.h"

namespace gpusched {
namespace {

template <typename Visit>
void for_each_bit(uint64_t mask, Visit&& visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<uint32_t>(std::countr_zero(mask)));
}

Device& device_at(Node& node, uint32_t index) {
  CHECK(index < node.devices.size());
  return node.devices[index];
}

void free_device(const State& state, Device& device) {
  CHECK(device.state != DeviceState::kFree);
  if (device.next_class) {
    device.device_class = *device.next_class;
    device.memory_mb = state.device_classes[device.device_class].memory_mb;
    device.next_class.reset();
  }
  device.state = DeviceState::kFree;
  device.shares.clear();
  device.held_by = {};
  device.draining_since = {};
  ++device.generation;
}

void on(State& state, const Configured& event) { rules::configured(state, event); }

void on(State& state, const TenantCreated& event) { state.add_tenant(*event.tenant); }

void on(State& state, const TenantUpdated& event) { rules::update_tenant(state, event); }

void on(State& state, const TenantDeleted& event) { rules::end_tenant(state, event); }

/// Puts a device into a slot of its own, or into that of one that is gone: in another generation.
void add_device(Node& node, std::span<const uint32_t>& reused, Device device) {
  if (reused.empty()) {
    CHECK(node.devices.size() < limits::kDevicesPerNodeMax);
    node.devices.push_back(std::move(device));
    return;
  }
  Device& before = device_at(node, reused.front());
  reused = reused.subspan(1);
  CHECK(before.state == DeviceState::kFree);
  CHECK(!before.promised_to.valid());
  device.generation = before.generation + 1;
  before = std::move(device);
}

void add_or_update_device(State& state, Node& node, const DeviceOffer& offer,
                          std::span<const uint32_t>& reused) {
  const uint32_t device_class =
      state.intern_device_class({.model = offer.model, .memory_mb = offer.memory_mb, .mig = offer.mig});
  const auto known = std::find_if(node.devices.begin(), node.devices.end(),
                                  [&](const Device& d) { return d.uuid == offer.uuid; });
  if (known == node.devices.end()) {
    return add_device(node, reused,
                      Device{.uuid = offer.uuid,
                             .device_class = device_class,
                             .memory_mb = offer.memory_mb,
                             .condition = offer.condition,
                             .detail = offer.detail,
                             .numa_node = offer.numa_node,
                             .pci_bus_id = offer.pci_bus_id});
  }
  known->missing_since = {};
  known->numa_node = offer.numa_node;
  known->pci_bus_id = offer.pci_bus_id;
  known->condition = offer.condition;
  // A device that something holds keeps its class, in slices or whole, until that is gone.
  const bool in_slices = offer.mig || state.device_classes[known->device_class].mig;
  const bool later = in_slices && known->state != DeviceState::kFree && device_class != known->device_class;
  known->next_class = later ? std::optional<uint32_t>(device_class) : std::nullopt;
  if (later) return;
  known->device_class = device_class;
  known->memory_mb = offer.memory_mb;
  if (known->state != DeviceState::kQuarantined) known->detail = offer.detail;
}

/// Stores how the offered devices are linked, by their slots. Nothing is known of devices that are gone.
void take_links(Node& node, const RegisterNode& offer) {
  node.topology_note = offer.topology_note;
  node.links.clear();
  if (offer.links.empty()) return;
  std::vector<std::size_t> slots;
  for (const DeviceOffer& device : offer.devices) {
    const auto at = std::find_if(node.devices.begin(), node.devices.end(),
                                 [&](const Device& known) { return known.uuid == device.uuid; });
    slots.push_back(static_cast<std::size_t>(at - node.devices.begin()));
  }
  node.links.resize(pair_count(node.devices.size()));
  for (std::size_t a = 0; a < slots.size(); ++a) {
    for (std::size_t b = a + 1; b < slots.size(); ++b) {
      if (slots[a] == slots[b]) continue;
      node.links[pair_index(slots[a], slots[b], node.devices.size())] =
          offer.links[pair_index(a, b, slots.size())];
    }
  }
}

void set_availability(Node& node, Availability to, const std::string& by, const std::string& reason,
                      Time at) {
  if (node.availability != to) node.availability_since = at;
  node.availability = to;
  node.availability_by = by;
  node.availability_reason = reason;
}

/// Clears all evidence against the node.
void clear_suspicion(State& state, Node& node) {
  rules::forget_ends(state, node);
  node.suspect_detail.clear();
  node.suspect_since = {};
}

void on(State& state, const NodeRegistered& event) {
  const RegisterNode& offer = *event.offer;
  Node* node = state.find_node(event.node);
  if (node == nullptr) node = &state.add_node(Node{.id = event.node, .name = offer.name});
  state.timers.erase(Timer{.due = node->state_since + state.config.lost_after,
                           .kind = TimerKind::kNodeLost,
                           .id = node->id.value});
  node->instance = offer.instance;
  const bool booted = node->boot_id != offer.boot_id;
  node->boot_id = offer.boot_id;
  if (state.config.feature_level >= 6) node->machine = offer.machine;
  node->version = offer.version;
  if (node->state != NodeState::kReady || !node->state_since.valid()) node->state_since = event.at;
  node->state = NodeState::kReady;
  node->silent_since = {};
  if (booted && node->availability != Availability::kDraining) {
    set_availability(*node, offer.validates ? Availability::kValidating : Availability::kInService,
                     offer.validates ? "agent" : "", offer.validates ? "its checks have not passed yet" : "",
                     event.at);
  }
  if (booted) node->failures.clear();
  if (booted) clear_suspicion(state, *node);
  node->features = offer.features;
  node->feature_bits = state.feature_bits_of(node->features);
  node->agent_labels = offer.labels;
  node->address = offer.address;
  node->cpu_milli = offer.cpu_milli;
  node->memory_mb = offer.memory_mb;
  for (Device& device : node->devices) {
    const bool offered = std::any_of(offer.devices.begin(), offer.devices.end(),
                                     [&](const DeviceOffer& o) { return o.uuid == device.uuid; });
    if (offered) continue;
    device.condition = DeviceCondition::kMissing;
    device.detail = "the node no longer has it";
    if (state.config.feature_level >= 6 && !device.missing_since.valid()) device.missing_since = event.at;
  }
  std::span<const uint32_t> reused = event.reused;
  for (const DeviceOffer& device : offer.devices) add_or_update_device(state, *node, device, reused);
  take_links(*node, offer);
  state.note_claims(*node);
  State::refresh_free_mask(*node);
}

void on(State& state, const NodeRemoved& event) {
  Node& node = state.node_at(event.node);
  CHECK(node.slot == event.slot);
  state.timers.erase(Timer{
      .due = node.state_since + state.config.lost_after, .kind = TimerKind::kNodeLost, .id = node.id.value});
  rules::forget_ends(state, node);
  state.remove_node(event.node);
}

void on(State& state, const TenantsForgotten& event) {
  for (const TenantId tenant : event.tenants) state.remove_tenant(tenant);
}

void on(State& state, const NodeStateChanged& event) {
  Node& node = state.node_at(event.node);
  const Timer lost{
      .due = node.state_since + state.config.lost_after, .kind = TimerKind::kNodeLost, .id = node.id.value};
  state.timers.erase(lost);
  node.state = event.to;
  node.state_since = event.at;
  State::refresh_free_mask(node);
  if (event.to == NodeState::kReady) node.silent_since = {};
  if (event.to != NodeState::kUnreachable) return;
  node.silent_since = event.at;
  state.timers.insert(
      Timer{.due = event.at + state.config.lost_after, .kind = TimerKind::kNodeLost, .id = node.id.value});
  for (const AttemptKey& key : node.attempts) {
    const Job* job = state.jobs.find(key.job);
    if (job == nullptr || job->retry.kill_after_lost_contact.ns == 0) continue;
    state.timers.insert(Timer{.due = event.at + job->retry.kill_after_lost_contact + limits::kContactSlack,
                              .kind = TimerKind::kContactLost,
                              .id = key.job.value,
                              .extra = key.attempt});
  }
}

void on(State& state, const DeviceConditionChanged& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  device.condition = event.condition;
  if (device.state != DeviceState::kQuarantined) device.detail = event.detail;  // The evidence stays.
  State::refresh_free_mask(node);
}

void add_with_flow(State& state, Job job, const JobFlow& flow) {
  std::vector<JobDependency> list;
  for (const Dependency& one : flow.dependencies) {
    list.push_back({.parent = one.parent,
                    .kind = one.kind,
                    .verdict = one.met ? JobDependency::Verdict::kMet : JobDependency::Verdict::kOpen});
  }
  job.set_dependencies(list);
  job.on_parent_failure = flow.on_parent_failure;
  if (!flow.array.empty()) job.array = job.id;
  Job& added = state.add_job(std::move(job));
  state.index_dependencies(added);
  state.set_begin(added, flow.begin_at);
  state.set_deadline(added, flow.deadline);
  if (flow.array.empty()) return;
  state.add_array(JobArray{
      .id = added.id, .ranges = flow.array, .count = count_of(flow.array), .at_once = flow.array_at_once});
}

void on(State& state, const JobSubmitted& event) {
  const JobRequest& request = event.request;
  Job job;
  job.id = event.job;
  job.tenant = event.tenant;
  job.spec = request.spec;
  job.order_key = event.order_key;
  note_submitted(state, job, event);
  job.max_runtime = request.max_runtime;
  job.retry = request.retry;
  job.job_class = state.acquire_class(event.tenant, request.parts);
  job.priority = request.priority;
  job.held = request.held;
  job.preemption_mode = request.preemption_mode;
  job.preemption_exempt = request.preemption_exempt;
  job.interactive = request.interactive;
  if (job.held) job.reason = JobReason::kHeld;
  if (request.flow.empty()) {
    state.add_job(std::move(job));
  } else {
    add_with_flow(state, std::move(job), request.flow.front());
  }
  state.tenant_at(event.tenant).jobs_total += request.is_array() ? count_of(request.flow.front().array) : 1;
}

void on(State& state, const BookingMade& event) { state.put_booking(*event.booking); }

void on(State& state, const BookingBegan& event) {
  Booking booking = state.booking_at(event.booking);
  booking.active = true;
  state.put_booking(std::move(booking));
}

void on(State& state, const BookingEnded& event) {
  Booking booking = state.booking_at(event.booking);
  if (event.cancelled || !booking.repeats()) return state.remove_booking(event.booking);
  // Times that went by while no scheduler ran are not made up for.
  const int64_t missed = (event.at - booking.end()).ns / booking.every.ns;
  booking.begin = booking.begin + Duration{booking.every.ns * (missed + 1)};
  booking.active = false;
  state.put_booking(std::move(booking));
}

void on(State& state, const Admitted& event) { state.put_submitter(*event.submitter, event.at); }

void on(State& state, const RequestRemembered& event) { note_remembered(state, event); }

void on(State& state, const OldestRequestForgotten& event) {
  for (uint32_t i = 0; i < event.count; ++i) state.forget_oldest_request();
}

void on(State& state, const RequestForgotten& event) { state.forget_request_of(event.tenant); }

// No device is granted twice, and no part of a shared one.
void hold_device(const State& state, Device& device, const Member& member, const AttemptKey& key) {
  if (member.gpu_milli == 0) {
    CHECK(device.state == DeviceState::kFree);
    device.state = DeviceState::kHeld;
    device.held_by = key;
    return;
  }
  CHECK(device.state == DeviceState::kFree || device.state == DeviceState::kShared);
  CHECK(device.milli_left() >= member.gpu_milli);
  CHECK(device.memory_mb_left() >= member.gpu_share_mb);
  const mig::Table* table = state.device_classes[device.device_class].table();
  CHECK((table != nullptr) == !member.mig_profile.empty());
  if (table != nullptr) {
    const mig::Profile* profile = table->profile(member.mig_profile);
    CHECK(profile != nullptr);
    CHECK(mig::fits(*table, device.slices(*table), *profile, member.mig_start));
  }
  device.state = DeviceState::kShared;
  const auto place =
      std::lower_bound(device.shares.begin(), device.shares.end(), key,
                       [](const Share& share, const AttemptKey& other) { return share.held_by < other; });
  device.shares.insert(place, Share{.held_by = key,
                                    .milli = member.gpu_milli,
                                    .memory_mb = member.gpu_share_mb,
                                    .draining_since = {},
                                    .mig_profile = member.mig_profile,
                                    .mig_start = member.mig_start});
}

// Frees the device with its last share. A device in quarantine stays there.
void free_share(const State& state, Device& device, const AttemptKey& key) {
  const auto erased = std::erase_if(device.shares, [&](const Share& share) { return share.held_by == key; });
  CHECK(erased == 1);
  if (device.shares.empty() && device.state == DeviceState::kShared) free_device(state, device);
}

// How many members the elastic part has, if there is one: that is the last.
int32_t elastic_members_of(const std::vector<Part>& parts, const std::vector<Member>& members) {
  if (!parts.back().is_elastic()) return 0;
  return static_cast<int32_t>(std::count_if(
      members.begin(), members.end(), [&](const Member& member) { return member.part + 1 == parts.size(); }));
}

void clear_watch(Job& job) {
  job.extras.set(&JobExtras::watch, WatchdogFinding::kNone);
  job.extras.set(&JobExtras::watch_since, {});
  job.extras.set(&JobExtras::watch_detail, {});
}

void on(State& state, const AttemptPlaced& event) {
  Job& job = state.job_at(event.job);
  CHECK(event.attempt == job.attempt_count + 1);
  if (state.config.feature_level >= 1 && job.attempt_count > 0) job.remember_node();
  job.attempt_count = event.attempt;
  job.scheduled_at = event.at;
  job.started_at = {};
  job.extras.set(&JobExtras::saved_at, {});
  job.usage = {};
  clear_watch(job);
  job.node = event.members.front().node;
  job.device_mask = event.members.front().device_mask;
  note_placed(state, job, event);
  state.move_job(job, JobState::kScheduled, JobReason::kPlaced);
  job.elastic_members = elastic_members_of(state.class_of(job).parts, event.members);
  std::vector<NodeId> nodes;
  if (event.members.size() > 1 || !job.extras->member_nodes.empty()) {
    for (const Member& member : event.members) nodes.push_back(member.node);
    job.set_member_nodes(nodes);
  }
  state.charge(job.tenant, state.held_by(job), event.at, work_of(state.class_of(job).parts));
  const Attempt& attempt = state.add_attempt(
      Attempt{.job = event.job, .number = event.attempt, .placed_at = event.at, .members = event.members});
  for (uint32_t member = 0; member < attempt.members.size(); ++member) {
    state.hold_member(attempt, member);
    Node& node = state.node_at(attempt.members[member].node);
    for_each_bit(attempt.members[member].device_mask, [&](uint32_t index) {
      hold_device(state, device_at(node, index), attempt.members[member], attempt.key(member));
    });
    State::refresh_free_mask(node);
  }
}

void on(State& state, const MemberPrepared& event) {
  Attempt* attempt = state.find_attempt(event.job, event.attempt);
  CHECK(attempt != nullptr);
  CHECK(event.member < attempt->members.size());
  attempt->move_member(event.member, MemberState::kPrepared);
}

void on(State& state, const MemberStarted& event) {
  Attempt* attempt = state.find_attempt(event.job, event.attempt);
  CHECK(attempt != nullptr);
  CHECK(event.member < attempt->members.size());
  attempt->move_member(event.member, MemberState::kRunning);
  if (!event.image_digest.empty())
    state.job_at(event.job).extras.set(&JobExtras::image_digest, Blob(event.image_digest));
  if (attempt->unbegun > 0) return;
  attempt->started_at = event.at;
  if (attempt->abandoned) return;
  Job& job = state.job_at(event.job);
  job.started_at = event.at;
  job.node_faults = 0;
  note_step(state, job, JobStep::kStarted, event.at);
  if (state.config.feature_level >= 2) job.ever_started = true;
  // One that was told to end before it started stays preempted.
  if (job.state == JobState::kScheduled) state.move_job(job, JobState::kRunning, JobReason::kStarted);
  if (job.max_runtime.ns == 0) return;
  state.timers.insert(Timer{.due = event.at + job.max_runtime + limits::kRuntimeSlack,
                            .kind = TimerKind::kRuntimeOver,
                            .id = event.job.value,
                            .extra = event.attempt});
}

void on(State& state, const StopRequested& event) {
  Attempt* attempt = state.find_attempt(event.job, event.attempt);
  CHECK(attempt != nullptr);
  attempt->stop = event.reason;
  if (event.reason == StopReason::kCancel) state.job_at(event.job).cancel_requested = true;
  if (event.reason == StopReason::kPreempt)
    state.move_job(state.job_at(event.job), JobState::kPreempted, JobReason::kPreempted);
}

void end_share(const State& state, Device& device, const AttemptKey& key, bool devices_free, Time at) {
  if (devices_free) return free_share(state, device, key);
  const auto share = std::find_if(device.shares.begin(), device.shares.end(),
                                  [&](const Share& one) { return one.held_by == key; });
  CHECK(share != device.shares.end());
  share->draining_since = at;
}

void end_devices(const State& state, Node& node, const Member& member, const AttemptKey& key,
                 bool devices_free, Time at) {
  for_each_bit(member.device_mask, [&](uint32_t index) {
    Device& device = device_at(node, index);
    if (member.gpu_milli > 0) return end_share(state, device, key, devices_free, at);
    if (device.state != DeviceState::kHeld) return;
    if (devices_free) return free_device(state, device);
    device.state = DeviceState::kDraining;
    device.draining_since = at;
  });
  State::refresh_free_mask(node);
}

void on(State& state, const MemberEnded& event) {
  Attempt* attempt = state.find_attempt(event.job, event.attempt);
  CHECK(attempt != nullptr);
  CHECK(event.member < attempt->members.size());
  Member& member = attempt->members[event.member];
  CHECK(member.state != MemberState::kEnded);
  if (const auto end = rules::node_end_of(state, *attempt, event.member, event.outcome, event.at))
    rules::note_end(state, member.node, *end);
  attempt->move_member(event.member, MemberState::kEnded);
  member.outcome = event.outcome;
  member.lost_tolerated = event.lost_tolerated;
  const bool well = event.outcome.cause == EndCause::kExited && event.outcome.exit_code == 0;
  if (!well && !event.lost_tolerated && attempt->is_gang() && !attempt->first_failed)
    attempt->first_failed = event.member;
  state.release_member(*attempt, event.member);
  end_devices(state, state.node_at(member.node), member, attempt->key(event.member), event.devices_free,
              event.at);
  if (!event.last) return;
  if (!attempt->abandoned) {
    Job& job = state.job_at(event.job);
    const Amount amount = state.held_by(job);
    state.discharge(job.tenant, amount, event.at, work_of(state.class_of(job).parts));
    const int64_t gpu_ms = gpu_ms_of(amount, event.at - attempt->placed_at);
    state.tenant_at(job.tenant).gpu_ms += gpu_ms;
    if (state.config.feature_level >= 3) job.attained_gpu_ms += gpu_ms;
    if (state.config.feature_level >= 7) job.usage = packed_usage(attempt->usage());
    if (attempt->started_at.valid() && job.max_runtime.ns != 0) {
      state.timers.erase(Timer{.due = attempt->started_at + job.max_runtime + limits::kRuntimeSlack,
                               .kind = TimerKind::kRuntimeOver,
                               .id = event.job.value,
                               .extra = event.attempt});
    }
  }
  state.remove_attempt(attempt->key());
}

void on(State& state, const AttemptAbandoned& event) {
  Attempt* attempt = state.find_attempt(event.job, event.attempt);
  CHECK(attempt != nullptr);
  CHECK(!attempt->abandoned);
  attempt->abandoned = true;
  attempt->stop = StopReason::kAbandoned;
  Job& job = state.job_at(event.job);
  note_step(state, job, JobStep::kAbandoned, event.at);
  state.discharge(job.tenant, state.held_by(job), event.at, work_of(state.class_of(job).parts));
}

void take_outcome(Job& job, const Outcome& outcome) {
  job.last_cause = outcome.cause;
  job.exit_code = outcome.exit_code;
  job.signal = outcome.signal;
  job.extras.set(&JobExtras::last_detail, outcome.keep_detail ? Blob(outcome.detail) : Blob());
}

void on(State& state, const JobFinished& event) {
  Job& job = state.job_at(event.job);
  note_finished(state, job, event);
  take_outcome(job, event.outcome);
  job.ended_at = event.at;
  state.move_job(job, event.state, event.reason);
  // Smaller payloads stand elsewhere, and journals of before larger ones have none.
  if (job.spec.view().size() > kTaskPayloadInlineMax && !task_payload_of(job.spec.view()).empty())
    state.set_spec(job, Blob(forget_task_payload(job.spec.view())));
  if (job.is_array()) return;  // Its elements are what is counted.
  Tenant& tenant = state.tenant_at(job.tenant);
  if (event.state == JobState::kCompleted) tenant.jobs_successful += 1;
  if (event.state == JobState::kFailed) tenant.jobs_failed += 1;
}

void on(State& state, const JobRequeued& event) {
  Job& job = state.job_at(event.job);
  note_requeued(state, job, event);
  take_outcome(job, event.outcome);
  if (!event.free_of_charge) (event.by_exit_code ? job.exit_failures : job.system_failures) += 1;
  job.node_faults = is_of_node(event.outcome.cause) ? job.node_faults + 1 : 0;
  job.held = event.hold;
  state.requeue(job, event.not_before);
  if (event.hold && state.config.feature_level >= 7) job.reason = JobReason::kHeld;
  if (!event.preempted) return;
  job.reason = JobReason::kPreempted;
  job.extras.set(&JobExtras::preempted_at, event.at);
  job.extras.set(&JobExtras::preempt_count, job.extras->preempt_count + 1);
}

void on(State& state, const BackoffEnded& event) { state.end_backoff(state.job_at(event.job)); }

void on(State& state, const JobsForgotten& event) {
  for (uint32_t i = 0; i < event.count; ++i) {
    CHECK(!state.finished.empty());
    state.remove_job(state.finished.front());
    state.finished.pop_front();
  }
}

void on(State& state, const DeviceFreed& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  if (device.state == DeviceState::kQuarantined) device.detail.clear();
  std::erase_if(device.shares, [](const Share& share) { return share.draining(); });
  if (device.shares.empty()) {
    free_device(state, device);
  } else {
    device.state = DeviceState::kShared;
  }
  State::refresh_free_mask(node);
}

void on(State& state, const ShareFreed& event) {
  Node& node = state.node_at(event.node);
  free_share(state, device_at(node, event.device), event.held_by);
  State::refresh_free_mask(node);
}

void on(State& state, const DeviceOccupied& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  CHECK(device.state == DeviceState::kFree || device.state == DeviceState::kQuarantined);
  if (device.state == DeviceState::kQuarantined) device.detail.clear();
  for (Share& share : device.shares) {
    if (share.draining()) share.draining_since = event.at;
  }
  device.state = device.shares.empty() ? DeviceState::kDraining : DeviceState::kShared;
  if (device.shares.empty()) device.draining_since = event.at;
  State::refresh_free_mask(node);
}

void on(State& state, const DeviceQuarantined& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  CHECK(device.state == DeviceState::kDraining || device.state == DeviceState::kShared);
  device.state = DeviceState::kQuarantined;
  device.detail = event.evidence;
  State::refresh_free_mask(node);
}

/// The job is looked at again when it avoids a node no longer.
void await_avoided(State& state, const Job& job) {
  const std::vector<Part>& parts = state.class_of(job).parts;
  if (parts.empty() || parts.front().wishes() == nullptr) return;
  for (const AvoidedNode& one : parts.front().wishes()->avoided) {
    if (one.until.valid())
      state.timers.insert(Timer{.due = one.until, .kind = TimerKind::kAvoidOver, .id = job.id.value});
  }
}

void on(State& state, const JobUpdated& event) {
  const UpdateJob& change = *event.change;
  Job& job = state.job_at(change.job);
  if ((change.given & kJobPriority) != 0) {
    job.priority = change.priority;
    state.reorder(job, event.order_key);
  }
  if ((change.given & kJobSpec) != 0) state.set_spec(job, change.spec);
  if ((change.given & kJobBegin) != 0) state.set_begin(job, change.begin_at);
  if ((change.given & kJobDeadline) != 0) state.set_deadline(job, change.deadline);
  if ((change.given & kJobParts) != 0) {
    state.set_parts(job, change.parts);
    await_avoided(state, job);
  }
  if ((change.given & kJobMaxRuntime) == 0) return;
  job.runtime_changed = true;
  const Attempt* attempt = state.find_attempt(job.id, job.attempt_count);
  const bool timed = attempt != nullptr && !attempt->abandoned && attempt->started_at.valid();
  Timer timer{.due = {}, .kind = TimerKind::kRuntimeOver, .id = job.id.value, .extra = job.attempt_count};
  if (timed && job.max_runtime.ns != 0) {
    timer.due = attempt->started_at + job.max_runtime + limits::kRuntimeSlack;
    state.timers.erase(timer);
  }
  job.max_runtime = change.max_runtime;
  if (!timed || job.max_runtime.ns == 0) return;
  timer.due = attempt->started_at + job.max_runtime + limits::kRuntimeSlack;
  state.timers.insert(timer);
}

void on(State& state, const DependencySettled& event) {
  state.resolve_dependency(state.job_at(event.job), event.parent, event.met);
}

void on(State& state, const ElementAdded& event) { state.add_element(event.job, event.parked); }

void on(State& state, const ElementUnparked& event) { state.unpark(state.job_at(event.job)); }

void on(State& state, const ArrayClosed& event) { state.close_array(event.job, event.reason); }

void on(State& state, const JobAsked& event) { note_asked(state, state.job_at(event.job), event); }

void on(State& state, const JobHoldChanged& event) { state.set_held(state.job_at(event.job), event.held); }

void on(State& state, const NodeAvailabilityChanged& event) {
  Node& node = state.node_at(event.node);
  set_availability(node, event.to, event.by, event.reason, event.at);
  if (event.to == Availability::kInService) node.failures.clear();
  if (event.to == Availability::kInService && event.by != "agent") clear_suspicion(state, node);
  State::refresh_free_mask(node);
}

void on(State& state, const NodeLabeled& event) {
  const LabelNode& change = *event.change;
  std::vector<Label>& labels = state.node_at(change.node).labels;
  const auto at = [&](const std::string& name) {
    return std::lower_bound(
        labels.begin(), labels.end(), name,
        [](const Label& label, const std::string& wanted) { return label.name < wanted; });
  };
  for (const std::string& name : change.remove) {
    const auto found = at(name);
    if (found != labels.end() && found->name == name) labels.erase(found);
  }
  for (const Label& label : change.set) {
    const auto found = at(label.name);
    if (found != labels.end() && found->name == label.name) {
      found->value = label.value;
    } else {
      labels.insert(found, label);
    }
  }
}

void on(State& state, const NodeFailureNoted& event) {
  std::vector<NodeFailure>& failures = state.node_at(event.node).failures;
  if (!event.tenant.valid()) return failures.clear();
  if (failures.size() >= limits::kNodeFailuresKept) failures.erase(failures.begin());
  failures.push_back({.tenant = event.tenant, .at = event.at});
}

void on(State& state, const TimerDropped& event) {
  state.timers.erase(Timer{
      .due = event.due, .kind = static_cast<TimerKind>(event.kind), .id = event.id, .extra = event.extra});
}

void on(State& state, const DeviceBarred& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  device.barred = event.barred;
  device.barred_detail = event.detail;
  device.barred_by = event.by;
  State::refresh_free_mask(node);
}

void on(State& state, const DeviceHeatChanged& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  device.hot = event.hot;
  device.hot_detail = event.detail;
  State::refresh_free_mask(node);
}

void on(State& state, const DeviceFaultChanged& event) {
  Node& node = state.node_at(event.node);
  Device& device = device_at(node, event.device);
  device.fault = event.fault;
  device.fault_code = event.code;
  device.fault_detail = event.detail;
  device.fault_id = event.id;
  device.fault_at = event.fault == FaultClass::kNone ? Time{} : event.at;
  State::refresh_free_mask(node);
}

void on(State& state, const NodeSuspected& event) {
  Node& node = state.node_at(event.node);
  node.suspect_detail = event.detail;
  node.suspect_since = event.detail.empty() ? Time{} : event.at;
}

void on(State& state, const WatchdogFindingChanged& event) {
  Job& job = state.job_at(event.job);
  job.extras.set(&JobExtras::watch, event.kind);
  job.extras.set(&JobExtras::watch_since, event.kind == WatchdogFinding::kNone ? Time{} : event.since);
  job.extras.set(&JobExtras::watch_detail, Blob(event.detail));
}

void on(State& state, const DevicesPromised& event) {
  state.add_promise(*event.promise);
  if (!event.promise->moved_by.empty()) note_move(state, *event.promise);
}

void on(State& state, const PromiseEnded& event) {
  state.remove_promise(event.job, event.at);
  if (!event.asked_at.valid()) return;
  Tenant& tenant = state.tenant_at(state.job_at(event.job).tenant);
  const int64_t took_ms = std::max<int64_t>((event.at - event.asked_at).ms(), 0);
  ++tenant.reclaims;
  tenant.reclaim_ms += took_ms;
  tenant.reclaim_ms_max = std::max(tenant.reclaim_ms_max, took_ms);
}

void on(State& state, const JobCheckpointed& event) {
  state.job_at(event.job).extras.set(&JobExtras::saved_at, event.saved_at);
}

void skip_timers(State& state, Duration span) {
  std::set<Timer> moved;
  for (Timer timer : state.timers) {
    if (timer.kind != TimerKind::kBackoffOver && timer.kind != TimerKind::kDeadline &&
        timer.kind != TimerKind::kBooking)
      timer.due = timer.due + span;
    moved.insert(timer);
  }
  state.timers = std::move(moved);
}

// Values from which the timers were computed move with them.
void on(State& state, const TimeSkipped& event) {
  const Duration kept_max = std::max(limits::kRequestKeysKept, state.config.finished_jobs_kept);
  const bool counts_still = state.skipped_last.valid() && state.skipped_last + kept_max > event.at;
  const Duration before = counts_still ? state.skipped : Duration{};
  state.skipped = std::min(before + event.span, limits::kSettingMax);
  state.skipped_last = event.at;
  skip_timers(state, event.span);
  for (auto& [key, attempt] : state.attempts) {
    if (attempt.started_at.valid()) attempt.started_at = attempt.started_at + event.span;
  }
  for (auto& [job, promise] : state.promises) {
    promise.since = promise.since + event.span;
    if (promise.asked_at.valid()) promise.asked_at = promise.asked_at + event.span;
  }
  for (Node& node : state.nodes) {
    if (node.state == NodeState::kUnreachable) node.state_since = node.state_since + event.span;
    if (node.silent_since.valid()) node.silent_since = node.silent_since + event.span;
    for (Device& device : node.devices) {
      if (device.draining_since.valid()) device.draining_since = device.draining_since + event.span;
      for (Share& share : device.shares) {
        if (share.draining() && state.config.feature_level >= 6)
          share.draining_since = share.draining_since + event.span;
      }
    }
  }
}

}  // namespace

void evolve(State& state, const Event& event) {
  state.digest.mix(event.index());
  std::visit(
      [&](const auto& concrete) {
        mix_fields(state.digest, concrete);
        on(state, concrete);
      },
      event);
}

}  // namespace gpusched
