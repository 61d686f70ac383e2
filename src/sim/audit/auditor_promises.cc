// The auditor's books of preemptions: nobody is ended for nothing, and what is promised goes to nobody else.
#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

constexpr Duration kPlanAgeMax = milliseconds(50);

template <typename Visit>
void for_each_device(const Promise& promise, Visit&& visit) {
  for (const Member& member : promise.members) {
    for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1)
      visit(member.node, static_cast<uint32_t>(std::countr_zero(rest)));
  }
}

}  // namespace

void Auditor::on(const DevicesPromised& event) {
  const Promise& promise = *event.promise;
  ReferenceJob& job = jobs_.at(promise.job);
  if (promise.moves) return book_move(promise, job);
  if (job.final || job.state != JobState::kPending || job.held || job.backs_off || job.promised)
    fail(name_of(promise.job) + " is promised something and does not wait for it");
  for (const Preemption& victim : promise.victims) {
    // The plan is some moments older than its record.
    const Duration grace = std::max(grace_, std::min(jobs_.at(victim.job).grace, grace_max_));
    if (job.deadline.valid() && promise.since + grace + policy::kDrainExpected >= job.deadline + kPlanAgeMax)
      fail(name_of(victim.job) + " is ended for " + name_of(promise.job) +
           ", whose deadline comes before what it holds is back");
    if (unclaimed_.erase({victim.job, victim.attempt}) == 0)
      fail(name_of(promise.job) + " names a victim that is not ended for it");
  }
  // Nobody is ended who gives nothing to where the job is to start.
  for (const Preemption& victim : promise.victims) {
    const bool is_there =
        std::ranges::any_of(attempts_.at({victim.job, victim.attempt}).members, [&](const Member& gives) {
          return std::ranges::any_of(promise.members,
                                     [&](const Member& kept) { return kept.node == gives.node; });
        });
    if (!is_there) fail(name_of(victim.job) + " is ended for " + name_of(promise.job) + " on other nodes");
  }
  check_victims_needed(promise);
  for_each_device(promise, [&](NodeId node, uint32_t index) {
    ReferenceDevice* kept = device(node, index);
    const bool victims = kept->state == DeviceState::kHeld &&
                         std::any_of(promise.victims.begin(), promise.victims.end(), [&](const auto& victim) {
                           return kept->held_by.job == victim.job && kept->held_by.attempt == victim.attempt;
                         });
    if (!victims && kept->state != DeviceState::kFree)
      fail(name_of(promise.job) + " is promised " + kept->uuid + ", which neither is free nor will be");
    if (kept->promised_to.valid()) fail(kept->uuid + " is promised twice");
    kept->promised_to = promise.job;
  });
  job.promised = true;
  job.reason = JobReason::kPreempting;
  promises_.emplace(promise.job, promise);
  check_quota(promise.job, job);
  check_gpu_time(promise.job, job, promise.since);
  begin_hold(promise.job, 0, promise.since);
  if (promise.reclaims) check_reclaim(promise);
}

/// Where a job is moved to: it is being ended elsewhere, and what it holds there counts until then.
void Auditor::book_move(const Promise& promise, const ReferenceJob& job) {
  const auto attempt = attempts_.find({promise.job, promise.attempt});
  const bool moves = job.state == JobState::kPreempted && attempt != attempts_.end() &&
                     attempt->second.live && attempt->second.preempted && job.attempts == promise.attempt;
  if (!moves) fail(name_of(promise.job) + " is promised another place and is not ended for a move");
  if (promise.amount != Amount{} || !promise.victims.empty())
    fail(name_of(promise.job) + " is moved and others are ended for it");
  for_each_device(promise, [&](NodeId node, uint32_t index) {
    ReferenceDevice* kept = device(node, index);
    if (kept->state != DeviceState::kFree)
      fail(name_of(promise.job) + " is moved to " + kept->uuid + ", which is not free");
    if (kept->promised_to.valid()) fail(kept->uuid + " is promised twice");
    kept->promised_to = promise.job;
  });
  promises_.emplace(promise.job, promise);
}

/// It is on its way to where it is moved: from now on what is kept for it there counts.
void Auditor::note_on_its_way(JobId id, Time at) {
  const auto found = promises_.find(id);
  if (found == promises_.end() || !found->second.moves || replica_.config.feature_level < 10) return;
  const ReferenceJob& job = jobs_.at(id);
  found->second.amount = total_of(job.parts);
  found->second.amount.gpu_memory_mb += given_mb(job, found->second.members);
  begin_hold(id, 0, at);
}

// A promise is for all that the job asks for: each of its members, whole.
bool Auditor::is_of(const Promise& promise, const ReferenceJob& job) {
  std::vector<int32_t> members(job.parts.size(), 0);
  for (const Member& member : promise.members) {
    if (member.part >= job.parts.size()) return false;
    const Part& part = job.parts[member.part];
    if (part.cpu_milli != member.cpu_milli || part.memory_mb != member.memory_mb) return false;
    if (part.gpu_count != std::popcount(member.device_mask) || part.is_share()) return false;
    ++members[member.part];
  }
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    const Part& part = job.parts[i];
    if (members[i] != part.member_count || part.is_elastic() || part.is_exclusive()) return false;
  }
  Amount wanted = total_of(job.parts);
  wanted.gpu_memory_mb += given_mb(job, promise.members);
  return promise.moves || promise.amount == wanted;
}

// A promise is kept, or somebody or something is to blame.
void Auditor::check_excuse(const PromiseEnded& event, const Promise& promise) {
  const ReferenceJob& job = jobs_.at(event.job);
  bool excused = false;
  switch (event.why) {
    case PromiseEnd::kPlaced:
      fulfilled_.emplace(event.job, promise);
      return;
    case PromiseEnd::kNotWaiting:
      excused = job.final || job.held || job.begin_at.valid() || !is_of(promise, job) ||
                (promise.moves && (job.cancel_asked || job.attempts != promise.attempt));
      break;
    case PromiseEnd::kNode:
      for (const Member& member : promise.members) {
        const ReferenceNode& node = nodes_.at(member.node);
        excused = excused || node.state != NodeState::kReady || node.availability != Availability::kInService;
      }
      break;
    case PromiseEnd::kDevice:
      excused = !is_of(promise, job);  // Changed, it may ask for more than these devices have.
      for_each_device(promise, [&](NodeId node, uint32_t index) {
        const ReferenceDevice* kept = device(node, index);
        excused = excused || kept->condition != DeviceCondition::kOk || kept->barred || kept->hot ||
                  kept->faulty || kept->state == DeviceState::kQuarantined || kept->mig ||
                  kept->mig_next;  // Promises are of whole devices.
      });
      break;
    case PromiseEnd::kQuota: {
      // As `usage_of` counts it: with the memory of the GPUs that it has.
      const Amount& own = promise.amount;
      for (TenantId tenant = job.tenant; tenant.valid(); tenant = tenants_.at(tenant).parent) {
        Amount usage = usage_of(tenant);
        if (is_in(job.tenant, tenant)) usage.add(own);  // It is off the books already.
        for (const Resource resource :
             {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
          excused = excused || amount_of(usage, resource) > tenants_.at(tenant).limits.get(resource);
        }
        const ReferenceTenant& reference = tenants_.at(tenant);
        if (own.has_gpus() && reference.window.ns > 0) {
          const auto [used, rounded] = gpu_ms_of(tenant, event.at);
          excused = excused || used + rounded >= reference.gpu_ms_max;
        }
      }
      break;
    }
    case PromiseEnd::kTime:
      excused = replica_.last.at + limits::kRuntimeSlack >= promise.since + limits::kPromiseKept;
      break;
  }
  if (!excused) fail("what was promised to " + name_of(event.job) + " is taken back for nothing");
}

void Auditor::on(const PromiseEnded& event) {
  const auto found = promises_.find(event.job);
  if (found == promises_.end()) return fail(name_of(event.job) + " loses a promise that it does not have");
  const Promise promise = found->second;
  promises_.erase(found);
  end_hold(event.job, 0, event.at);
  jobs_.at(event.job).promised = false;
  for_each_device(promise, [&](NodeId node, uint32_t index) { device(node, index)->promised_to = {}; });
  check_excuse(event, promise);
}

}  // namespace gpusched::sim
