#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "codec/binary.h"
#include "codec/snapshot.h"
#include "codec/snapshot_checks.h"
#include "codec/snapshot_sections.h"
#include "engine/messages/commands.h"

namespace gpusched {
namespace {

using snapshot::between;
using snapshot::FinishedJobs;
using snapshot::Header;
using snapshot::holds;
using snapshot::kFormat;
using snapshot::known;
using snapshot::possible;
using snapshot::possible_slices;
using snapshot::Section;
using snapshot::StoredTimer;

Error corrupt(const char* what) {
  return Error{.code = ErrorCode::kCorrupt, .message = std::string("the snapshot is damaged: ") + what};
}

/// Reads sections into a state. Every cross-reference is checked before it is used, and what the engine takes
/// for granted is checked at the end, so that a damaged snapshot is refused here and not found out later.
class SnapshotDecoder {
 public:
  explicit SnapshotDecoder(std::string_view bytes) : reader_(bytes) {}

  Result<State> run() {
    while (reader_.ok() && !reader_.at_end() && section_ != Section::kEnd) {
      const auto section = static_cast<Section>(reader_.u8());
      const uint64_t number = reader_.varint();
      const std::string_view bytes = reader_.take(reader_.fixed32());
      if (!reader_.ok()) break;
      if (section > snapshot::kSectionLast)
        return newer("section " + std::to_string(static_cast<int>(section)));
      if (!in_order(section)) return corrupt("its sections are out of order");
      const Result<Unit> added = add(section, number, bytes);
      if (newer_) return newer("a field of section " + std::to_string(static_cast<int>(section)));
      if (!added) return added.error();
    }
    if (!reader_.ok() || section_ != Section::kEnd) return corrupt("it ends too early");
    if (!reader_.at_end()) return corrupt("there are bytes after its end");
    for (const uint32_t ours : classes_) state_.release_class(ours);
    for (const JobId id : dependents_) state_.index_dependencies(state_.job_at(id));
    if (!whole()) return corrupt("its parts contradict each other");
    return std::move(state_);
  }

 private:
  /// Sections ascend; classes and jobs take turns.
  bool in_order(Section section) {
    if (section_ == Section{}) {
      section_ = section;
      return section == Section::kHeader;
    }
    if (section == Section::kHeader || section > snapshot::kSectionLast) return false;
    const bool back = section == Section::kJobClass && section_ == Section::kJob;
    const auto place = [](Section one) {
      if (one == Section::kOwner) return 2 * static_cast<int>(Section::kNode) + 1;
      return one == Section::kEnd ? 511 : 2 * static_cast<int>(one);
    };
    if (place(section) < place(section_) && !back) return false;
    section_ = section;
    return true;
  }

  Result<Unit> add(Section section, uint64_t number, std::string_view bytes) {
    switch (section) {
      case Section::kHeader:
        return add_header(bytes);
      case Section::kTenant:
        return add_tenant(bytes);
      case Section::kDeviceClass:
        return add_device_class(bytes);
      case Section::kNode:
        return add_node(bytes);
      case Section::kJobClass:
        return add_job_class(bytes);
      case Section::kJob:
        return add_job(number, bytes);
      case Section::kAttempt:
        return add_attempt(bytes);
      case Section::kRequest:
        return add_request(bytes);
      case Section::kFinished:
        return add_finished(bytes);
      case Section::kTimer:
        return add_timer(bytes);
      case Section::kArray:
        return add_array(bytes);
      case Section::kPromise:
        return add_promise(bytes);
      case Section::kSubmitter:
        return add_submitter(bytes);
      case Section::kBooking:
        return add_booking(bytes);
      case Section::kOwner:
        return add_owner(bytes);
      case Section::kKey:
        return add_key(bytes);
      case Section::kNodeTicket:
        return add_node_ticket(bytes);
      case Section::kNodeIdentity:
        return add_node_identity(bytes);
      case Section::kPerson:
        return add_person(bytes);
      case Section::kEnd:
        return Unit{};
    }
    return corrupt("an unknown section");
  }

  static Error newer(const std::string& what) {
    return {.code = ErrorCode::kVersion,
            .message = "the snapshot's " + what +
                       " is unknown: it was written by a newer version; start that version with this folder"};
  }

  template <typename T>
  bool read(std::string_view bytes, T& value) {
    Decoder decoder(bytes);
    decoder.decode(value);
    newer_ |= decoder.ok() && decoder.is_newer();
    return decoder.ok();
  }
  /// Ids are sequence numbers of commands that were.
  bool was(uint64_t id) const { return id != 0 && id <= state_.last.sequence; }

  Result<Unit> add_header(std::string_view bytes) {
    Header header;
    header.format = 0;
    if (!read(bytes, header)) return corrupt("its header");
    if (header.format != kFormat) {
      return Error{
          .code = ErrorCode::kVersion,
          .message = "snapshot format " + std::to_string(header.format) + " was written by a newer version"};
    }
    if (header.config.feature_level > kFeatureLevel)
      return newer("feature level " + std::to_string(header.config.feature_level));
    if (header.sequence < kFirstSequence - 1 || !possible(header.at)) return corrupt("its header");
    if (!well_formed(Configure{.config = header.config})) return corrupt("its configuration");
    state_.config = header.config;
    state_.last = {.sequence = header.sequence, .at = header.at};
    state_.digest = Digest(header.digest);
    if (header.skipped.ns < 0 || header.skipped > limits::kSettingMax || !possible(header.skipped_last))
      return corrupt("its skipped time");
    state_.skipped = header.skipped;
    state_.skipped_last = header.skipped_last;
    if (header.job_count <= reader_.remaining()) state_.jobs.reserve(header.job_count);
    return Unit{};
  }
  Result<Unit> add_tenant(std::string_view bytes) {
    Tenant tenant;
    if (!read(bytes, tenant) || !was(tenant.id.value) || !possible(tenant)) return corrupt("a tenant");
    if (tenant.id <= newest_tenant_) return corrupt("a tenant twice");
    newest_tenant_ = tenant.id;
    if (tenant.parent.valid() &&
        (tenant.parent >= tenant.id || state_.find_tenant(tenant.parent) == nullptr)) {
      return corrupt("a tenant's parent");
    }
    state_.add_tenant(std::move(tenant));
    return Unit{};
  }
  Result<Unit> add_device_class(std::string_view bytes) {
    DeviceClass device_class;
    if (!read(bytes, device_class)) return corrupt("a device class");
    if (!between(0, device_class.memory_mb, limits::kMegabytesMax)) return corrupt("a device class");
    if (state_.device_classes.size() >= limits::kDeviceClassesMax) return corrupt("too many device classes");
    const std::size_t before = state_.device_classes.size();
    if (state_.intern_device_class(device_class) != before) return corrupt("a device class twice");
    return Unit{};
  }
  Result<Unit> add_node(std::string_view bytes) {
    Node node;
    if (!read(bytes, node) || !was(node.id.value)) return corrupt("a node");
    if (node.removed &&
        (!node.name.empty() || !node.devices.empty() || !node.ends.empty() || node.state != NodeState::kDead))
      return corrupt("a removed node");
    if (node.devices.size() > limits::kDevicesPerNodeMax) return corrupt("a node's devices");
    for (const Device& device : node.devices) {
      if (device.device_class >= state_.device_classes.size()) return corrupt("a device's class");
      if (!possible(device)) return corrupt("a device");
      if (device.next_class && *device.next_class >= state_.device_classes.size())
        return corrupt("a device's next class");
      if (!possible_slices(device, state_.device_classes[device.device_class]))
        return corrupt("a device's slices");
    }
    if (!known(NodeState::kReady, node.state, NodeState::kDead)) return corrupt("a node's state");
    if (node.availability > Availability::kDraining || !possible(node.availability_since) ||
        node.features.size() > limits::kNodeFeaturesMax || node.labels.size() > limits::kNodeLabelsMax ||
        node.agent_labels.size() > limits::kNodeLabelsMax ||
        node.failures.size() > limits::kNodeFailuresKept) {
      return corrupt("a node's service");
    }
    if (!possible(node.state_since) || !possible(node.silent_since)) return corrupt("a node's times");
    if (node.ends.size() > limits::kNodeEndsKept || !possible(node.suspect_since))
      return corrupt("a node's past");
    for (const NodeEnd& end : node.ends) {
      Tenant* tenant = state_.find_tenant(end.tenant);
      if (tenant == nullptr || !possible(end.at)) return corrupt("a node's past");
      tenant->recent_ends += 1;
      tenant->recent_quick_ends += end.quick ? 1 : 0;
    }
    if (!between(0, node.cpu_milli, int64_t{limits::kCpuCoresMax} * 1000) ||
        !between(0, node.memory_mb, limits::kMegabytesMax)) {
      return corrupt("a node's size");
    }
    const bool named = !node.removed && state_.find_node_named(node.name) != nullptr;
    if (state_.find_node(node.id) != nullptr || named) return corrupt("a node twice");
    state_.restore_node(std::move(node));
    return Unit{};
  }
  Result<Unit> add_key(std::string_view bytes) {
    AccessKey key;
    if (!read(bytes, key) || !was(key.id.value) || !possible(state_, key)) return corrupt("a key");
    if (state_.keys.size() > 0 && key.id < newest_key_) return corrupt("a key's id");
    newest_key_ = key.id;
    if (state_.keys.size() >= limits::kKeysMax || !state_.keys.add(std::move(key)))
      return corrupt("a key twice");
    return Unit{};
  }
  Result<Unit> add_node_ticket(std::string_view bytes) {
    NodeTicket ticket;
    const auto& known = state_.node_identities.tickets();
    if (!read(bytes, ticket) || !was(ticket.id.value) || !is_possible(ticket)) return corrupt("a node token");
    if (!possible(ticket.created_at) || !possible(ticket.expires_at)) return corrupt("a node token's times");
    if (ticket.is_used() && !was(ticket.identity.value)) return corrupt("a node token's use");
    if (!known.empty() && ticket.id <= known.rbegin()->first) return corrupt("a node token's id");
    if (known.size() >= limits::kNodeTicketsMax || !state_.node_identities.add(std::move(ticket)))
      return corrupt("a node token twice");
    return Unit{};
  }
  Result<Unit> add_node_identity(std::string_view bytes) {
    NodeIdentity identity;
    const auto& known = state_.node_identities.identities();
    if (!read(bytes, identity) || !was(identity.id.value) || !possible(identity))
      return corrupt("a node's identity");
    if (!known.empty() && identity.node <= known.rbegin()->first) return corrupt("a node's identity's name");
    if (known.size() >= limits::kNodeIdentitiesMax || !state_.node_identities.put(std::move(identity)))
      return corrupt("a node's identity twice");
    return Unit{};
  }
  Result<Unit> add_person(std::string_view bytes) {
    Person each;
    if (!read(bytes, each) || !was(each.id.value) || !possible(state_, each)) return corrupt("a person");
    if (state_.people.size() >= limits::kPeopleMax || !state_.people.put(std::move(each)))
      return corrupt("a person twice");
    return Unit{};
  }
  Result<Unit> add_owner(std::string_view bytes) {
    JobOwner owner;
    if (!read(bytes, owner)) return corrupt("an owner");
    const bool possible = owner == JobOwner{} || is_possible(owner.kind, owner.name);
    if (!possible || !state_.owners.restore(std::move(owner))) return corrupt("an owner");
    return Unit{};
  }
  /// False: the number is no owner's.
  bool retain_owner(uint32_t number) {
    if (number != OwnerTable::kNobody && state_.owners.at(number) == nullptr) return false;
    state_.owners.retain(number);
    return true;
  }
  Result<Unit> add_job_class(std::string_view bytes) {
    JobClass job_class;
    if (!read(bytes, job_class) || !possible(job_class.parts)) return corrupt("a job class");
    classes_.push_back(state_.acquire_class(job_class.tenant, job_class.parts));
    return Unit{};
  }
  Result<Unit> add_job(uint64_t number, std::string_view bytes) {
    Job job;
    if (!read(bytes, job) || number >= classes_.size() || !possible(job)) return corrupt("a job");
    if (job.id <= newest_job_ || !was(job.id.value)) return corrupt("a job's id");
    job.job_class = classes_[number];
    if (state_.classes[job.job_class].tenant != job.tenant || state_.find_tenant(job.tenant) == nullptr) {
      return corrupt("a job's tenant");
    }
    newest_job_ = job.id;
    state_.retain_class(job.job_class);
    if (!retain_owner(job.owner)) return corrupt("a job's owner");
    if (job.state == JobState::kPending && job.not_before.valid()) ++backing_off_;
    if (job.state == JobState::kPending && job.deadline.valid() && !job.is_array()) ++with_deadline_;
    if (job.state == JobState::kPending && job.unmet > 0) dependents_.push_back(job.id);
    if (job.is_array() && job.state != JobState::kPending && !is_final(job.state)) return corrupt("an array");
    if (job.is_array()) ++array_jobs_;
    if (job.is_element()) {
      JobArray& tally = elements_[job.array];
      tally.records += 1;
      if (!is_final(job.state)) (job.parked ? tally.parked : tally.live).insert(job.id);
      if (job.state == JobState::kPending && !job.parked) tally.waiting += 1;
    }
    if (job.promised) ++promised_jobs_;
    if (job.array.valid()) share_spec(job);
    state_.add_job(std::move(job));
    return Unit{};
  }
  /// An array's elements share its specification again, or what it was when they became jobs.
  void share_spec(Job& job) {
    const Job* const whole = state_.jobs.find(job.array);
    Blob& last = element_specs_[job.array];
    if (whole != nullptr && whole->spec == job.spec) {
      job.spec = whole->spec;
    } else if (last == job.spec) {
      job.spec = last;
    } else if (job.is_element()) {
      last = job.spec;
    }
  }
  /// By the devices' own books.
  bool has_devices(const Member& member, const AttemptKey& key) const {
    const Node* node = state_.find_node(member.node);
    for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
      const auto index = static_cast<std::size_t>(std::countr_zero(rest));
      if (index >= node->devices.size() || !holds(member, node->devices[index], key)) return false;
    }
    return true;
  }
  Result<Unit> add_attempt(std::string_view bytes) {
    Attempt attempt;
    if (!read(bytes, attempt) || attempt.members.empty() ||
        attempt.members.size() > std::size_t{limits::kMembersMax} || attempt.number == 0 ||
        (attempt.first_failed && *attempt.first_failed >= attempt.members.size()))
      return corrupt("an attempt");
    if (attempt.stop > kStopReasonLast || !possible(attempt.placed_at) || !possible(attempt.started_at)) {
      return corrupt("an attempt");
    }
    if (state_.find_attempt(attempt.job, attempt.number) != nullptr) return corrupt("an attempt twice");
    const Job* job = state_.jobs.find(attempt.job);
    if (!attempt.abandoned) {
      if (job == nullptr || job->attempt_count != attempt.number) return corrupt("an attempt's job");
      if (job->state != JobState::kScheduled && job->state != JobState::kRunning &&
          job->state != JobState::kPreempted)
        return corrupt("an attempt's job");
    } else if (job != nullptr && job->attempt_count < attempt.number) {
      return corrupt("an abandoned attempt's job");
    }
    // An abandoned one's job may be forgotten.
    const std::vector<Part> parts = job == nullptr ? std::vector<Part>() : state_.class_of(*job).parts;
    bool all_over = true;
    for (uint32_t i = 0; i < attempt.members.size(); ++i) {
      const Member& member = attempt.members[i];
      // The parts of an abandoned attempt's job may have been changed since.
      const bool of_job = attempt.abandoned || member.part < parts.size();
      if (!possible(member) || !of_job || state_.find_node(member.node) == nullptr)
        return corrupt("an attempt's member");
      if (member.state == MemberState::kEnded) continue;
      all_over = false;
      if (!has_devices(member, attempt.key(i))) return corrupt("an attempt's devices");
      (member.gpu_milli > 0 ? held_shares_ : held_devices_) += std::popcount(member.device_mask);
    }
    if (all_over) return corrupt("an attempt that is over");
    if (!attempt.abandoned) ++current_attempts_;
    const Attempt& added = state_.add_attempt(std::move(attempt));
    for (uint32_t i = 0; i < added.members.size(); ++i) {
      if (added.members[i].state != MemberState::kEnded) state_.hold_member(added, i);
    }
    if (!added.abandoned) state_.charge(job->tenant, state_.held_by(*job), Time{}, work_of(parts));
    return Unit{};
  }
  Result<Unit> add_request(std::string_view bytes) {
    RememberedRequest request;
    if (!read(bytes, request) || !possible(request.at)) return corrupt("a remembered request");
    const auto newest = state_.requests.rbegin();
    if (!was(request.first_id) || (newest != state_.requests.rend() && request.first_id <= newest->first))
      return corrupt("a remembered request's number");
    if (!retain_owner(request.owner)) return corrupt("a remembered request's owner");
    state_.remember(std::move(request));
    return Unit{};
  }
  Result<Unit> add_booking(std::string_view bytes) {
    Booking booking;
    if (!read(bytes, booking) || !was(booking.id.value) || booking.name.empty() || booking.nodes.empty() ||
        state_.find_booking(booking.id) != nullptr || state_.find_booking_named(booking.name) != nullptr) {
      return corrupt("a reservation");
    }
    if (!possible(booking.begin) || !between(1, booking.length.ns, limits::kBookingMax.ns) ||
        !between(0, booking.every.ns, limits::kBookingMax.ns) || !possible(booking.end())) {
      return corrupt("a reservation's times");
    }
    if (booking.tenant.valid() && state_.find_tenant(booking.tenant) == nullptr)
      return corrupt("a reservation's tenant");
    const bool known = std::all_of(booking.nodes.begin(), booking.nodes.end(),
                                   [&](NodeId node) { return state_.find_node(node) != nullptr; });
    if (!known || !std::is_sorted(booking.nodes.begin(), booking.nodes.end()) ||
        state_.bookings.size() >= limits::kBookingsMax) {
      return corrupt("a reservation's nodes");
    }
    ++bookings_;
    const Timer timer = {.due = booking.active ? booking.end() : booking.begin,
                         .kind = TimerKind::kBooking,
                         .id = booking.id.value};
    if (state_.timers.erase(timer) == 0) return corrupt("a reservation's timer");
    state_.put_booking(std::move(booking));
    return Unit{};
  }
  Result<Unit> add_submitter(std::string_view bytes) {
    Submitter submitter;
    if (!read(bytes, submitter) || !possible(submitter.full_at) || !possible(submitter.next_at) ||
        !between(0, submitter.day, Submitter::day_of(limits::kTimeMax)) || submitter.spent < 0) {
      return corrupt("what a user spent");
    }
    if (state_.find_tenant(submitter.tenant) == nullptr || !submitter.forgettable_at().valid() ||
        state_.find_submitter(submitter.tenant, submitter.user) != nullptr ||
        state_.submitters.size() >= limits::kSubmittersMax) {
      return corrupt("who spent something");
    }
    state_.put_submitter(std::move(submitter), Time{});
    return Unit{};
  }
  Result<Unit> add_finished(std::string_view bytes) {
    FinishedJobs finished;
    if (!read(bytes, finished)) return corrupt("the finished jobs");
    for (const JobId id : finished.ids) {
      const Job* job = state_.jobs.find(id);
      if (job == nullptr || !is_final(job->state)) return corrupt("a finished job");
      state_.finished.push_back(id);
    }
    return Unit{};
  }
  Result<Unit> add_array(std::string_view bytes) {
    JobArray array;
    if (!read(bytes, array) || !possible(array)) return corrupt("an array");
    if (array.id <= newest_array_ || !was(array.id.value + static_cast<uint64_t>(array.count)))
      return corrupt("an array's id");
    newest_array_ = array.element(array.count - 1);  // Its numbers are its own.
    const auto tally = elements_.find(array.id);
    if (tally != elements_.end()) {
      const auto& [id, counted] = *tally;
      array.records = counted.records;
      array.waiting = counted.waiting;
      array.live = counted.live;
      array.parked = counted.parked;
      elements_.erase(tally);
    }
    const Job* job = state_.jobs.find(array.id);
    if (job != nullptr && !job->is_array()) return corrupt("an array's job");
    if (job == nullptr && array.records == 0) return corrupt("an array without a job");
    const bool over = array.unexpanded() == 0 && array.live.empty() && array.parked.empty();
    if ((job == nullptr || is_final(job->state)) && !over) return corrupt("an array that is over");
    if (job != nullptr) --array_jobs_;
    state_.restore_array(std::move(array));
    return Unit{};
  }
  /// Each element is one of its array, and no job before its turn.
  bool elements_fit() const {
    bool fit = true;
    state_.jobs.for_each([&](const Job& job) {
      if (!job.is_element()) return true;
      const JobArray* array = state_.array_of_element(job.id);
      fit = array != nullptr && array->id == job.array && array->is_expanded(array->position_of(job.id));
      return fit;
    });
    return fit;
  }
  Result<Unit> add_timer(std::string_view bytes) {
    StoredTimer timer;
    if (!read(bytes, timer) || timer.due < Time{}) return corrupt("a timer");
    const Job* job = state_.jobs.find(JobId{timer.id});
    const Node* node = state_.find_node(NodeId{timer.id});
    switch (timer.kind) {
      case TimerKind::kBackoffOver:
        if (job == nullptr || job->state != JobState::kPending || !job->not_before.valid() ||
            job->not_before != timer.due || timer.extra != 0) {
          return corrupt("a back-off's timer");
        }
        ++backoff_timers_;
        break;
      case TimerKind::kDeadline:
        if (job == nullptr || is_final(job->state) || !job->deadline.valid() || job->deadline != timer.due ||
            timer.extra != 0) {
          return corrupt("a deadline's timer");
        }
        if (job->state == JobState::kPending && !job->is_array()) ++deadline_timers_;
        break;
      case TimerKind::kNodeLost:
        if (node == nullptr) return corrupt("a node's timer");
        break;
      case TimerKind::kBooking:
        if (timer.extra != 0) return corrupt("a reservation's timer");
        ++booking_timers_;
        break;
      case TimerKind::kPromiseOver:
        if (job == nullptr) return corrupt("a promise's timer");
        ++promise_timers_;
        break;
      case TimerKind::kRuntimeOver:
      case TimerKind::kContactLost:
      case TimerKind::kAvoidOver:  // Its job may have been forgotten since.
        break;
      default:
        return corrupt("a timer's kind");
    }
    const Timer due{.due = timer.due, .kind = timer.kind, .id = timer.id, .extra = timer.extra};
    if (!state_.timers.insert(due).second) return corrupt("a timer twice");
    return Unit{};
  }

  Result<Unit> add_promise(std::string_view bytes) {
    Promise promise;
    if (!read(bytes, promise) || promise.members.empty() || !possible(promise.since) ||
        !possible(promise.asked_at) || promise.work > kWorkClassLast)
      return corrupt("a promise");
    const Job* job = state_.jobs.find(promise.job);
    if (job == nullptr || job->promised == promise.moves || job->tenant != promise.tenant)
      return corrupt("a promise's job");
    // Before feature level 6 the job may have been changed since.
    if (!possible(promise.amount) ||
        (promise.moves && promise.amount != Amount{} && job->state != JobState::kPending))
      return corrupt("a promise's amount");
    if (promise.moves) ++moves_;
    const Timer over{
        .due = promise.since + limits::kPromiseKept, .kind = TimerKind::kPromiseOver, .id = job->id.value};
    if (!state_.timers.contains(over)) return corrupt("a promise's timer");
    for (const Member& member : promise.members) {
      const Node* node = state_.find_node(member.node);
      if (!possible(member) || node == nullptr) return corrupt("a promise's member");
      for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
        const auto index = static_cast<std::size_t>(std::countr_zero(rest));
        if (index >= node->devices.size() || node->devices[index].promised_to != job->id)
          return corrupt("a promise's devices");
      }
      promised_devices_ += std::popcount(member.device_mask);
    }
    const JobId id = job->id;
    const auto [it, inserted] = state_.promises.try_emplace(id, std::move(promise));
    if (!inserted) return corrupt("a promise twice");
    state_.count_promise(it->second, 1, Time{});
    return Unit{};
  }

  /// Each count of one thing from two sides.
  bool whole() const {
    const State& state = state_;
    const int64_t placed = state.count(JobState::kScheduled) + state.count(JobState::kRunning) +
                           state.count(JobState::kPreempted);
    if (placed != current_attempts_) return false;
    if (backing_off_ != backoff_timers_ || with_deadline_ != deadline_timers_) return false;
    if (array_jobs_ != 0 || !elements_.empty() || (!state.arrays.empty() && !elements_fit())) return false;
    const auto promises = static_cast<int64_t>(state.promises.size());
    if (promised_jobs_ + moves_ != promises || promise_timers_ != promises) return false;
    if (bookings_ != booking_timers_ || !state.owners.is_whole()) return false;
    int64_t held = 0;
    int64_t shares = 0;
    int64_t promised = 0;
    for (const Node& node : state.nodes) {
      for (const Device& device : node.devices) {
        shares += std::count_if(device.shares.begin(), device.shares.end(),
                                [](const Share& share) { return !share.draining(); });
      }
      held += std::count_if(node.devices.begin(), node.devices.end(),
                            [](const Device& device) { return device.state == DeviceState::kHeld; });
      promised += std::count_if(node.devices.begin(), node.devices.end(),
                                [](const Device& device) { return device.promised_to.valid(); });
    }
    if (held != held_devices_ || shares != held_shares_ || promised != promised_devices_) return false;
    const int64_t final_count = state.count(JobState::kCompleted) + state.count(JobState::kFailed) +
                                state.count(JobState::kCancelled);
    std::vector<JobId> finished(state.finished.begin(), state.finished.end());
    std::sort(finished.begin(), finished.end());
    return static_cast<int64_t>(finished.size()) == final_count &&
           std::adjacent_find(finished.begin(), finished.end()) == finished.end();
  }

  ByteReader reader_;
  State state_;
  Section section_{};              ///< The newest.
  std::vector<uint32_t> classes_;  ///< One reference each is ours until the end.
  TenantId newest_tenant_;
  JobId newest_job_;
  KeyId newest_key_;
  int64_t current_attempts_ = 0;  ///< Attempts that are not abandoned.
  int64_t held_devices_ = 0;
  int64_t held_shares_ = 0;
  int64_t promised_devices_ = 0;
  int64_t promised_jobs_ = 0;
  int64_t moves_ = 0;  ///< Promises to jobs that are moved.
  int64_t bookings_ = 0;
  int64_t booking_timers_ = 0;
  int64_t promise_timers_ = 0;
  int64_t backing_off_ = 0;
  int64_t backoff_timers_ = 0;
  std::vector<JobId> dependents_;        ///< Jobs with open dependencies.
  std::map<JobId, Blob> element_specs_;  ///< The last of each array's elements that is not the array's own.
  std::map<JobId, JobArray> elements_;   ///< Counts for arrays that are still to come.
  JobId newest_array_;                   ///< The last number of the newest array.
  int64_t array_jobs_ = 0;               ///< Arrays' own jobs whose arrays are still to come.
  int64_t with_deadline_ = 0;            ///< Pending.
  int64_t deadline_timers_ = 0;
  bool newer_ = false;  ///< Something had a field that this program does not know.
};

}  // namespace

Result<State> decode_snapshot(std::string_view bytes) { return SnapshotDecoder(bytes).run(); }

}  // namespace gpusched
