// Checks whole plans by docs/policies.md. Plans are made of a state that is older than their record: they are
// judged where all that they choose was carried out, and nothing came back in between.
#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "base/overloaded.h"
#include "engine/policy/policies.h"
#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

constexpr Resource kLimited[] = {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory,
                                 Resource::kJobs};
/// Attempts that are being stopped are expected to be gone after so long.
constexpr Duration kStopExpected = seconds(30);
/// Between a plan and its record.
constexpr Duration kJudgedLate = seconds(5);

bool is_exclusive(const std::vector<Part>& parts) {
  return std::ranges::any_of(parts, [](const Part& part) { return part.is_exclusive(); });
}

int64_t thousandths_of(const std::vector<Part>& parts) { return total_of(parts).gpu_thousandths(); }

}  // namespace

/// Whether the event may give back, or change, what a plan was made with.
bool Auditor::gives_back(const Event& event) {
  return std::visit(Overloaded{
                        [](const StopRequested&) { return true; },
                        [](const MemberEnded&) { return true; },
                        [](const AttemptAbandoned&) { return true; },
                        [](const PromiseEnded&) { return true; },
                        [](const DeviceFreed&) { return true; },
                        [](const ShareFreed&) { return true; },
                        [](const DeviceOccupied&) { return true; },
                        [](const DeviceQuarantined&) { return true; },
                        [](const DeviceConditionChanged&) { return true; },
                        [](const DeviceBarred&) { return true; },
                        [](const DeviceHeatChanged&) { return true; },
                        [](const DeviceFaultChanged&) { return true; },
                        [](const NodeRegistered&) { return true; },
                        [](const NodeRemoved&) { return true; },
                        [](const NodeLabeled&) { return true; },
                        [](const NodeStateChanged&) { return true; },
                        [](const NodeAvailabilityChanged&) { return true; },
                        [](const BookingMade&) { return true; },
                        [](const BookingBegan&) { return true; },
                        [](const BookingEnded&) { return true; },
                        [](const TenantCreated&) { return true; },
                        [](const TenantUpdated&) { return true; },
                        [](const TenantDeleted&) { return true; },
                        [](const JobUpdated&) { return true; },
                        [](const Configured&) { return true; },
                        [](const auto&) { return false; },
                    },
                    event);
}

/// Before the command's events are taken up: what of a plan was carried out.
void Auditor::begin_plan(const Command& command, const Events& events) {
  plan_ = std::get_if<CommitPlan>(&command);
  if (plan_ == nullptr) return;
  std::set<JobId> done;
  for (const Event& event : events) {
    if (const auto* placed = std::get_if<AttemptPlaced>(&event)) done.insert(placed->job);
    if (const auto* promised = std::get_if<DevicesPromised>(&event)) done.insert(promised->promise->job);
  }
  const bool whole =
      std::ranges::all_of(plan_->groups, [&](const PlanGroup& group) { return done.contains(group.job); });
  if (!whole || gave_back_at_ > plan_->based_on) plan_ = nullptr;
}

void Auditor::end_plan(const Command& command, const Events& events) {
  const bool is_plan = std::holds_alternative<CommitPlan>(command);
  if (!is_plan && std::ranges::any_of(events, gives_back)) gave_back_at_ = replica_.last.sequence;
  plan_ = nullptr;
  note_first();
}

// Rule 1: nobody is ended without whom it would do.

Auditor::Room Auditor::given_by(const Member& member, NodeId node, const ReferenceDevice& like) {
  Room room;
  if (member.node != node || member.state == MemberState::kEnded) return room;
  room.cpu_milli = member.cpu_milli;
  room.memory_mb = member.memory_mb;
  if (member.gpu_milli > 0) return room;
  for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
    const ReferenceDevice* held = device(node, static_cast<uint32_t>(std::countr_zero(rest)));
    room.devices += is_alike(*held, like) && !held->promised_to.valid() ? 1 : 0;
  }
  return room;
}

bool Auditor::is_alike(const ReferenceDevice& one, const ReferenceDevice& like) {
  const bool fit = one.condition == DeviceCondition::kOk && !one.barred && !one.hot && !one.faulty &&
                   !one.mig && !one.mig_next;
  return fit && one.state != DeviceState::kQuarantined && one.model == like.model &&
         one.memory_mb == like.memory_mb;
}

/// Room of the node that nobody has, and nobody was promised.
Auditor::Room Auditor::free_on(NodeId id, const ReferenceDevice& like) {
  const ReferenceNode& node = nodes_.at(id);
  Room room{.cpu_milli = node.cpu_milli, .memory_mb = node.memory_mb};
  for (const ReferenceDevice& one : node.devices)
    room.devices +=
        one.state == DeviceState::kFree && !one.promised_to.valid() && is_alike(one, like) ? 1 : 0;
  for (const JobAttempt& live : live_) {
    for (const Member& member : attempts_.at(live).members) {
      if (member.node != id || member.state == MemberState::kEnded) continue;
      room.cpu_milli -= member.cpu_milli;
      room.memory_mb -= member.memory_mb;
    }
  }
  for (const auto& [job, promise] : promises_) {
    for (const Member& kept : promise.members) {
      if (kept.node != id) continue;
      room.cpu_milli -= kept.cpu_milli;
      room.memory_mb -= kept.memory_mb;
    }
  }
  return room;
}

/// Before the promise is in the books.
void Auditor::check_victims_needed(const Promise& promise) {
  if (plan_ == nullptr || promise.victims.empty() || promise.members.size() != 1) return;
  const Member& kept = promise.members.front();
  const ReferenceJob& job = jobs_.at(promise.job);
  const Part& part = job.parts.front();
  static const ReferenceDevice kNone;
  const ReferenceDevice* const of_mask =
      kept.device_mask == 0 ? nullptr
                            : device(kept.node, static_cast<uint32_t>(std::countr_zero(kept.device_mask)));
  const ReferenceDevice& like = of_mask == nullptr ? kNone : *of_mask;
  const Room free = free_on(kept.node, like);
  const auto fits = [&](const Room& room) {
    return room.devices >= part.gpu_count && room.cpu_milli >= part.cpu_milli &&
           room.memory_mb >= part.memory_mb;
  };
  const auto give = [&](Room& room, const JobAttempt& attempt) {
    for (const Member& member : attempts_.at(attempt).members) room.add(given_by(member, kept.node, like));
  };
  for (const Preemption& spared : promise.victims) {
    if (is_exclusive(jobs_.at(spared.job).parts)) continue;
    Room room = free;
    for (const Preemption& other : promise.victims)
      if (other.job != spared.job) give(room, {other.job, other.attempt});
    if (fits(room))
      fail(name_of(spared.job) + " is ended for " + name_of(promise.job) + ", which has room without that");
  }
  // Nor while what others give back already is enough, unless that was waited for in vain.
  const auto since = line_since_.find(promise.job);
  if (since == line_since_.end() || since->second + limits::kPromiseKept <= promise.since + kJudgedLate)
    return;
  Room coming = free;
  bool shut = false;
  for (const JobAttempt& live : live_) {
    const ReferenceAttempt& attempt = attempts_.at(live);
    const bool here = std::ranges::any_of(attempt.members, [&](const Member& member) {
      return member.node == kept.node && member.state != MemberState::kEnded;
    });
    if (!here) continue;
    const Attempt* known = replica_.find_attempt(live.first, live.second);
    const bool own = std::ranges::any_of(promise.victims, [&](const Preemption& victim) {
      return victim.job == live.first && victim.attempt == live.second;
    });
    const bool going = attempt.preempted && !attempt.abandoned && !own && known != nullptr &&
                       known->stop == StopReason::kPreempt;
    if (going) give(coming, live);
    shut = shut || (!going && is_exclusive(jobs_.at(live.first).parts));
  }
  if (!shut && fits(coming))
    fail("others are ended for " + name_of(promise.job) + ", which has room on what is given back already");
}

// Rule 8: an elastic gang takes beyond its least nothing that others who wait are owed.

/// Thousandths of GPUs that the tenant is guaranteed and does not hold.
int64_t Auditor::idle_of(TenantId tenant) const {
  int64_t held = usage_of(tenant).gpu_thousandths();
  for (const JobAttempt& live : live_) {
    const ReferenceJob& job = jobs_.at(live.first);
    if (job.state == JobState::kPreempted && !attempts_.at(live).abandoned && is_in(job.tenant, tenant))
      held -= thousandths_of(job.parts);
  }
  return std::max<int64_t>(tenants_.at(tenant).guarantee.gpus * kMilliPerGpu - held, 0);
}

/// Thousandths of GPUs that work of this kind holds and keeps.
int64_t Auditor::held_by_work(bool online) const {
  const auto counts = [&](JobId id) {
    const Job* job = replica_.jobs.find(id);
    return job != nullptr && (work_of(replica_.class_of(*job).parts) == WorkClass::kOnline) == online;
  };
  int64_t held = 0;
  for (const JobAttempt& live : live_) {
    const ReferenceJob& job = jobs_.at(live.first);
    if (attempts_.at(live).abandoned || job.state == JobState::kPreempted || !counts(live.first)) continue;
    held += thousandths_of(job.parts);
  }
  for (const auto& [job, promise] : promises_) held += counts(job) ? thousandths_of(jobs_.at(job).parts) : 0;
  return held;
}

int64_t Auditor::gpus_in_service() const {
  int64_t gpus = 0;
  for (const auto& [id, node] : nodes_) {
    const bool in_service = !node.removed && node.state == NodeState::kReady &&
                            node.availability == Availability::kInService && heard_.contains(id);
    gpus += in_service ? static_cast<int64_t>(node.devices.size()) : 0;
  }
  return gpus;
}

/// Before the attempt is in the books; its job's last part has as many members as were placed.
void Auditor::check_growth(const AttemptPlaced& event, const ReferenceJob& job) {
  if (plan_ == nullptr || job.last_most <= job.last_least) return;
  if (job.parts.back().member_count <= job.last_least) return;
  const int64_t taken = thousandths_of(job.parts);
  if (taken == 0) return;
  const Job* own = replica_.jobs.find(event.job);
  const bool online = own != nullptr && work_of(replica_.class_of(*own).parts) == WorkClass::kOnline;
  std::map<TenantId, int64_t> owed;
  bool other_waits = false;
  for (const auto& [id, since] : line_since_) {
    const Job* waiting = replica_.jobs.find(id);
    const auto lined = lined_at_.find(id);
    if (waiting == nullptr || !waiting->is_queued() || lined == lined_at_.end()) continue;
    if (lined->second > plan_->based_on) continue;
    const ReferenceJob& reference = jobs_.at(id);
    if (thousandths_of(reference.parts) == 0) continue;
    other_waits = other_waits || (work_of(replica_.class_of(*waiting).parts) == WorkClass::kOnline) != online;
    TenantId top;
    for (TenantId at = reference.tenant; at.valid(); at = tenants_.at(at).parent)
      if (tenants_.at(at).guarantee.gpus > 0) top = at;
    if (top.valid() && !is_in(job.tenant, top)) owed[top] = idle_of(top);
  }
  const int64_t free = gpus_in_service() * kMilliPerGpu - held_by_work(true) - held_by_work(false);
  int64_t most = free;
  for (const auto& [tenant, idle] : owed) most -= idle;
  for (TenantId at = job.tenant; at.valid(); at = tenants_.at(at).parent) most = std::max(most, idle_of(at));
  if (!owed.empty() && taken > most)
    fail(name_of(event.job) + " grows over what others who wait are guaranteed");
  const PoolShares& pools = replica_.config.pools;
  if (!pools.lends() || !other_waits) return;
  const auto room = [&](bool of_online) {
    const int64_t share = pools.gpus_of(of_online, gpus_in_service()) * kMilliPerGpu;
    return std::max<int64_t>(share - held_by_work(of_online), 0);
  };
  if (taken > std::max(room(online), free - room(!online)))
    fail(name_of(event.job) + " grows over the share of the other pool, whose jobs wait");
}

// Rule 3: who is first and waits for a limit alone is passed below it only by what is gone by then.

/// Everything that the rule is said of here: one line of jobs, in order of priority and age, and run times as
/// their limits say.
bool Auditor::keeps_limits() const {
  const SchedulingPolicy& policy = replica_.config.policy;
  const bool in_order = (policy.job_order.empty() || policy.job_order == "priority_aging") &&
                        (policy.queue_order.empty() || policy.queue_order == "priority_aging");
  const bool any_owed =
      std::ranges::any_of(tenants_, [](const auto& entry) { return entry.second.guarantee != Amount{}; });
  return policy.run_times == "limits" && policy.reservations != 0 && in_order && !any_owed &&
         !replica_.config.pools.lends();
}

/// Use by the limit's tenant, or pool; nothing: promises are open, so it is not known when that comes back.
std::optional<Amount> Auditor::used_below(const First& limit) const {
  if (!limit.is_pool) {
    for (const auto& [id, promise] : promises_)
      if (is_in(jobs_.at(id).tenant, limit.tenant)) return std::nullopt;
    return usage_of(limit.tenant);
  }
  if (!promises_.empty()) return std::nullopt;
  Amount used;
  for (const JobAttempt& live : live_)
    if (is_below(limit, live.first)) used.gpu_milli += thousandths_of(jobs_.at(live.first).parts);
  return used;
}

bool Auditor::is_below(const First& limit, JobId id) const {
  if (!limit.is_pool) return is_in(jobs_.at(id).tenant, limit.tenant);
  const Job* job = replica_.jobs.find(id);
  return job != nullptr && work_of(replica_.class_of(*job).parts) == limit.work;
}

/// As the limit counts them; -1: it counts none of these.
int64_t Auditor::limit_of(const First& limit, Resource resource) const {
  if (!limit.is_pool) {
    const int64_t most = tenants_.at(limit.tenant).limits.get(resource);
    return most == Limits::kUnlimited ? -1 : most;
  }
  if (resource != Resource::kGpus) return -1;
  const PoolShares& pools = replica_.config.pools;
  return pools.gpus_of(limit.work == WorkClass::kOnline, gpus_in_service());
}

/// True if the limit does not leave as much of some resource as is wanted, beside what is used.
bool Auditor::exceeds(const First& limit, const Amount& used, const Amount& wanted) const {
  return std::ranges::any_of(kLimited, [&](Resource resource) {
    const int64_t most = limit_of(limit, resource);
    if (most < 0 || amount_of(wanted, resource) == 0) return false;
    if (resource == Resource::kGpus)
      return used.gpu_thousandths() + wanted.gpu_thousandths() > most * kMilliPerGpu;
    return amount_of(used, resource) + amount_of(wanted, resource) > most;
  });
}

/// The nearest limit that keeps the job waiting, of a tenant or of its pool.
std::optional<Auditor::First> Auditor::blocked_below(JobId id) const {
  const ReferenceJob& job = jobs_.at(id);
  const Amount own = total_of(job.parts);
  std::optional<First> nearest;
  // False: it can never start below this limit, and so keeps nothing of any.
  const auto look = [&](const First& limit) -> bool {
    const std::optional<Amount> used = used_below(limit);
    if (exceeds(limit, {}, own)) return false;
    if (!nearest.has_value() && used.has_value() && exceeds(limit, *used, own)) nearest = limit;
    return true;
  };
  for (TenantId at = job.tenant; at.valid(); at = tenants_.at(at).parent) {
    const ReferenceTenant& tenant = tenants_.at(at);
    // How much memory it would be given depends on where, and GPU hours come back by themselves.
    const int64_t memory = tenant.limits.get(Resource::kGpuMemory);
    if (memory != Limits::kUnlimited || tenant.window.ns > 0) return std::nullopt;
    if (!look({.job = id, .tenant = at})) return std::nullopt;
  }
  const Job* known = replica_.jobs.find(id);
  if (!replica_.config.pools.on() || known == nullptr) return nearest;
  const First pool{.job = id, .is_pool = true, .work = work_of(replica_.class_of(*known).parts)};
  return look(pool) ? nearest : std::nullopt;
}

/// A node takes the job at once.
bool Auditor::has_room(const ReferenceJob& job) {
  const Part& part = job.parts.front();
  const bool plain = job.parts.size() == 1 && part.member_count == 1 && !part.is_elastic() &&
                     !part.is_share() && part.place.empty() && !part.may_span_nodes && part.booking == 0 &&
                     job.attempts == 0;
  if (!plain) return false;
  return std::ranges::any_of(nodes_, [&](const auto& entry) {
    const auto& [id, node] = entry;
    const Node* known = replica_.find_node(id);
    if (node.removed || node.state != NodeState::kReady || node.availability != Availability::kInService)
      return false;
    if (!heard_.contains(id) || known == nullptr || known->booked_from != kNever) return false;
    const auto takes = [&](const ReferenceDevice& like) {
      const Room room = free_on(id, like);
      return room.devices >= part.gpu_count && room.cpu_milli >= part.cpu_milli &&
             room.memory_mb >= part.memory_mb;
    };
    const bool shut = std::ranges::any_of(
        live_, [&](const JobAttempt& live) { return is_exclusive(jobs_.at(live.first).parts); });
    if (shut) return false;
    if (part.gpu_count == 0) return takes({});
    return std::ranges::any_of(node.devices, [&](const ReferenceDevice& like) {
      return gpu_model_matches(like.model, part.gpu_model) && like.memory_mb >= part.gpu_memory_mb &&
             takes(like);
    });
  });
}

/// After each command: who stands first of all in line, and for which limit it waits.
void Auditor::note_first() {
  const Job* first = nullptr;
  std::optional<First> now;
  if (keeps_limits()) {
    for (const auto& [id, since] : line_since_) {
      const Job* waiting = replica_.jobs.find(id);
      if (waiting == nullptr || !waiting->is_queued()) continue;
      if (first == nullptr || waiting->order() < first->order()) first = waiting;
    }
    if (first != nullptr && has_room(jobs_.at(first->id))) now = blocked_below(first->id);
  }
  if (!now.has_value()) {
    first_ = {};
  } else if (first_.job != now->job || first_.tenant != now->tenant || first_.is_pool != now->is_pool) {
    first_ = *now;
    first_.since = replica_.last.sequence;
  }
}

/// Before the attempt is in the books.
void Auditor::check_first_kept(const AttemptPlaced& event, const ReferenceJob& job) {
  if (plan_ == nullptr || !first_.job.valid() || first_.since > plan_->based_on) return;
  const std::optional<Amount> used = used_below(first_);
  if (event.job == first_.job || !used.has_value() || !is_below(first_, event.job)) return;
  const Amount kept = total_of(jobs_.at(first_.job).parts);
  Amount taken = total_of(job.parts);
  Amount then = *used;
  then.add(taken);
  // Resources that the first does not ask for are not kept for it; those not taken keep nothing from it.
  for (const Resource resource : kLimited) {
    const int64_t most = limit_of(first_, resource);
    if (most < 0 || amount_of(taken, resource) == 0 || amount_of(kept, resource) == 0) continue;
    const bool beside = resource == Resource::kGpus
                            ? then.gpu_thousandths() + kept.gpu_thousandths() <= most * kMilliPerGpu
                            : amount_of(then, resource) + amount_of(kept, resource) <= most;
    if (beside) continue;
    if (event.at + run_of(job) <= back_by(event.at) + kJudgedLate) continue;
    fail(name_of(event.job) + " takes what " + name_of(first_.job) +
         ", which is first, waits for below the limit " +
         (first_.is_pool ? "of its pool" : "of tenant " + std::to_string(first_.tenant.value)));
  }
}

/// By when all that is used of the limit, and of any other that the first waits for, is expected to be back.
Time Auditor::back_by(Time now) const {
  Time back = now + kStopExpected;
  for (const JobAttempt& live : live_) {
    const ReferenceJob& other = jobs_.at(live.first);
    const Attempt* known = replica_.find_attempt(live.first, live.second);
    if (known == nullptr || attempts_.at(live).abandoned) continue;
    const Time begin = known->started_at.valid() ? known->started_at : known->placed_at;
    back = std::max(back, begin + std::max(other.longest, run_of(other)));
  }
  return back;
}

Duration Auditor::run_of(const ReferenceJob& job) {
  return job.max_runtime.ns > 0 ? job.max_runtime : policy::LimitRunTimes::kUnlimitedRunTime;
}

}  // namespace gpusched::sim
