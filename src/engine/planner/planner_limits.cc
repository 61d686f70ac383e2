#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "engine/planner/plan_slice.h"
#include "engine/planner/planner.h"

// Backfilling below limits: a tenant's limit and a strict pool are pools that span all nodes. The first job
// that one keeps waiting has a claim on what comes back of it, and a job that is promised a start on a node
// has one on what it needs of its tenants' limits. A job behind it passes when it is gone by then, or fits
// beside.
namespace gpusched {
namespace {

constexpr Resource kLimitResources[] = {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu,
                                        Resource::kMemory, Resource::kJobs};
/// With more attempts than this, what comes back of a limit is counted once a second.
constexpr std::size_t kCountedAtOnce = 4'096;
constexpr Duration kCountAgain = seconds(1);
constexpr std::size_t kStartsKept = 1'024;

bool belongs_below(const State& state, TenantId tenant, TenantId above) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->id == above) return true;
  }
  return false;
}

bool has_limits(const Tenant& tenant) {
  return std::any_of(std::begin(kLimitResources), std::end(kLimitResources),
                     [&](Resource resource) { return tenant.limits.get(resource) != Limits::kUnlimited; });
}

/// The tenant, or one above it, has limits.
bool is_limited(const State& state, TenantId tenant) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (has_limits(*at)) return true;
  }
  return false;
}

/// The limit of the tenant that the amounts exceed together, of those that the second asks for.
Resource limit_exceeded(const Tenant& tenant, const Amount& used, const Amount& asked) {
  Amount then = used;
  then.add(asked);
  for (const Resource resource : kLimitResources) {
    const int64_t limit = tenant.limits.get(resource);
    if (limit == Limits::kUnlimited || amount_of(asked, resource) == 0) continue;
    if (amount_of(then, resource) > limit) return resource;
  }
  return Resource::kNone;
}

/// Whether who has the claim still waits.
bool is_claimed(const State& state, const auto& claim) {
  const Job* job = state.jobs.find(claim.job);
  return job != nullptr && job->is_queued() && job->job_class == claim.job_class;
}

}  // namespace

std::optional<WaitReason> Planner::quota_block(const State& state, uint32_t job_class) const {
  return quota_block(state, job_class, expected_amount(state, state.classes[job_class].parts, 0));
}

// The memory of what devices of this kind give to one member that names no size.
int64_t Planner::given_by(const State& state, uint32_t device_class, const Part& part) const {
  const DeviceClass& kind = state.device_classes[device_class];
  return part.is_share() ? kind.share_mb_of(part, kind.memory_mb) : part.gpu_count * kind.memory_mb;
}

// The amount that a job of one member would hold on devices of this kind.
Amount Planner::amount_on(const State& state, const Job& job, uint32_t device_class) const {
  const std::vector<Part>& parts = state.class_of(job).parts;
  Amount amount = total_of(parts);
  if (level_ >= 10 && parts.front().gpu_count > 0 && !parts.front().names_gpu_memory())
    amount.gpu_memory_mb += given_by(state, device_class, parts.front());
  return amount;
}

// The least that the job would hold; the most for a gang, as its members may get several kinds of devices.
Amount Planner::expected_amount(const State& state, const std::vector<Part>& parts,
                                int32_t last_members) const {
  Amount amount = total_of(parts, last_members);
  if (level_ < 10) return amount;
  for (const Part& part : parts) {
    if (part.gpu_count == 0 || part.names_gpu_memory()) continue;
    std::optional<int64_t> given;
    for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
      if (!state.device_classes[kind].serves(part)) continue;
      const int64_t of_kind = given_by(state, kind, part);
      if (!given.has_value() || (is_gang(parts) ? of_kind > *given : of_kind < *given)) given = of_kind;
    }
    const int64_t members = last_members > 0 && &part == &parts.back() ? last_members : part.member_count;
    amount.gpu_memory_mb += members * given.value_or(0);
  }
  return amount;
}

// Kinds of devices of which the job may have what it would be given, by its tenants' limits of GPU memory.
// Asked of every node that is looked at, and the same for all of them until the job is placed.
uint64_t Planner::affordable(const State& state, Candidate& candidate) const {
  if (candidate.affordable.has_value()) return *candidate.affordable;
  const JobClass& wanted = state.classes[candidate.job_class];
  const Part& part = wanted.parts.front();
  uint64_t& kinds = candidate.affordable.emplace(~uint64_t{0});
  if (level_ < 10 || part.gpu_count == 0 || part.names_gpu_memory()) return kinds;
  int64_t left = INT64_MAX;
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    const int64_t limit = at->limits.get(Resource::kGpuMemory);
    if (limit == Limits::kUnlimited) continue;
    left = std::min(left, limit - at->usage.gpu_memory_mb - planned_usage_of(at->id).gpu_memory_mb);
  }
  if (left == INT64_MAX) return kinds;
  kinds = 0;
  for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
    if (!state.device_classes[kind].serves(part)) continue;  // Its memory is not defined for the part.
    if (given_by(state, kind, part) <= left) kinds |= uint64_t{1} << kind;
  }
  return kinds;
}

std::optional<WaitReason> Planner::quota_block(const State& state, uint32_t job_class,
                                               const Amount& amount) const {
  const JobClass& wanted = state.classes[job_class];
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    Amount used = at->usage;
    used.add(planned_usage_of(at->id));
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      if (amount_of(amount, resource) == 0 || limit == Limits::kUnlimited) continue;
      Amount then = used;
      then.add(amount);
      if (amount_of(then, resource) <= limit) continue;
      return WaitReason{.code = WaitCode::kQuota,
                        .wanted = wanted.parts.front(),
                        .tenant = at->id,
                        .resource = resource,
                        .limit = limit,
                        .current = amount_of(used, resource),
                        .requested = amount_of(amount, resource)};
    }
  }
  if (const Tenant* spent = guarantees::out_of_gpu_time(state, wanted.tenant, amount, now_)) {
    return WaitReason{.code = WaitCode::kGpuTime,
                      .wanted = wanted.parts.front(),
                      .tenant = spent->id,
                      .limit = spent->gpu_time.max_ms,
                      .current = spent->gpu_time.used_by(now_, spent->usage),
                      .lifts_at = spent->gpu_time.end_of_window(now_)};
  }
  return pool_block(wanted.parts, state, amount);
}

// A pool that lends nothing and borrows nothing is full.
std::optional<WaitReason> Planner::pool_block(const std::vector<Part>& parts, const State& state,
                                              const Amount& amount) const {
  const int64_t wanted = amount.gpu_thousandths();
  if (!pools_.on() || pools_.lends() || wanted == 0) return std::nullopt;
  const bool online = work_of(parts) == WorkClass::kOnline;
  const int64_t share = pools_.gpus_of(online, capacity_.gpus);
  const int64_t held =
      (online ? state.online : state.batch).milli + (online ? planned_online_ : planned_batch_);
  if (held + wanted <= share * kMilliPerGpu) return std::nullopt;
  return WaitReason{
      .code = WaitCode::kPool, .wanted = parts.front(), .limit = share, .current = milli_up(held)};
}

std::optional<WaitReason> Planner::limit_block(const State& state, Candidate& candidate) {
  std::optional<WaitReason> over = quota_block(state, candidate.job_class);
  if (over.has_value()) return over;
  info(candidate.job_class).limits_from = {};
  // It waits for no limit, and so keeps nothing of the others.
  const JobClass& wanted = state.classes[candidate.job_class];
  const auto drop = [&](const LimitKey& limit) {
    const auto found = limit_claims_.find(limit);
    if (found != limit_claims_.end() && found->second.job_class == candidate.job_class)
      limit_claims_.erase(found);
  };
  if (!limit_claims_.empty()) {
    for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
         at = state.find_tenant(at->parent)) {
      drop({at->id, WorkClass::kUnset, true});
    }
    drop({TenantId{}, work_of(wanted.parts), true});
  }
  return limit_kept_from(state, candidate, total_of(wanted.parts));
}

// The limit that would not leave room for the holder's first job beside so much more of the class; none: all
// would.
std::optional<WaitReason> Planner::overflow_beside(const State& state, uint32_t job_class,
                                                   const Amount& amount, uint32_t holder) const {
  const JobClass& wanted = state.classes[job_class];
  const JobClass& first = state.classes[holder];
  const Amount kept = total_of(first.parts);
  WaitReason reason{.code = WaitCode::kReserved, .wanted = wanted.parts.front(), .of_limit = true};
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    if (!has_limits(*at) || !belongs_below(state, first.tenant, at->id)) continue;
    if (limit_exceeded(*at, {}, kept) != Resource::kNone) continue;  // It could never start.
    Amount used = at->usage;
    used.add(planned_usage_of(at->id));
    used.add(kept);
    // A resource that the first job does not ask for is not kept for it.
    for (const Resource resource : kLimitResources) {
      const int64_t limit = at->limits.get(resource);
      if (limit == Limits::kUnlimited || amount_of(amount, resource) == 0 || amount_of(kept, resource) == 0)
        continue;
      Amount then = used;
      then.add(amount);
      if (amount_of(then, resource) <= limit) continue;
      reason.tenant = at->id;
      reason.resource = resource;
      return reason;
    }
  }
  if (!pools_.on() || pools_.lends() || amount.gpu_thousandths() == 0 || kept.gpu_thousandths() == 0)
    return std::nullopt;
  const WorkClass work = work_of(wanted.parts);
  if (work != work_of(first.parts)) return std::nullopt;
  const bool online = work == WorkClass::kOnline;
  const int64_t share = pools_.gpus_of(online, capacity_.gpus) * kMilliPerGpu;
  const int64_t held =
      (online ? state.online : state.batch).milli + (online ? planned_online_ : planned_batch_);
  if (kept.gpu_thousandths() > share) return std::nullopt;
  if (held + kept.gpu_thousandths() + amount.gpu_thousandths() <= share) return std::nullopt;
  return reason;
}

// Whether devices of some kind may be free of which its tenant may not have what they would give.
std::optional<WaitReason> Planner::memory_block(const State& state, Candidate& candidate) {
  const uint64_t beyond = shape_of(candidate.job_class).device_classes & ~affordable(state, candidate);
  if (beyond == 0) return std::nullopt;
  const std::vector<Part>& parts = state.classes[candidate.job_class].parts;
  Amount amount = total_of(parts);
  for (uint64_t rest = beyond; rest != 0; rest &= rest - 1) {
    const auto kind = static_cast<uint32_t>(std::countr_zero(rest));
    amount.gpu_memory_mb = std::max(amount.gpu_memory_mb, given_by(state, kind, parts.front()));
  }
  return quota_block(state, candidate.job_class, amount);
}

// Finds a job before the candidate that needs what the candidate would hold of a limit beyond its start.
std::optional<WaitReason> Planner::limit_kept_from(const State& state, Candidate& candidate,
                                                   const Amount& amount) {
  if (policies_.reservations == 0) return std::nullopt;
  // Most clusters have no limits, and many reservations.
  const bool is_strict = pools_.on() && !pools_.lends();
  if (!is_strict && !is_limited(state, state.classes[candidate.job_class].tenant)) return std::nullopt;
  const auto delays = [&](uint32_t holder, JobId job, const policy::QueueKey& key,
                          auto&& start_of) -> std::optional<WaitReason> {
    // A shorter one of its class may pass a job, and take what that needs.
    const bool is_first = candidate.job == job || candidate.job == info(candidate.job_class).head.job;
    if (holder == candidate.job_class && is_first) return std::nullopt;
    std::optional<WaitReason> reason = overflow_beside(state, candidate.job_class, amount, holder);
    if (!reason.has_value()) return std::nullopt;
    complete(state, candidate);
    if (candidate.key < key) return std::nullopt;
    const auto [start, trusting_until] = start_of();
    if (is_gone_by(candidate, start, trusting_until)) return std::nullopt;
    reason->reserved_for = job;
    reason->reserved_start = start;
    return reason;
  };
  const auto by_claim = [&](const LimitKey& limit) -> std::optional<WaitReason> {
    const auto found = limit_claims_.find(limit);
    if (found == limit_claims_.end()) return std::nullopt;
    LimitClaim& claim = found->second;
    if (!is_claimed(state, claim)) return std::nullopt;
    return delays(claim.job_class, claim.job, claim.key, [&] {
      if (!claim.found_at.valid()) find_limit_start(state, claim);
      return std::pair(claim.start, claim.trusting_until);
    });
  };
  const JobClass& wanted = state.classes[candidate.job_class];
  for (const bool by_another : {false, true}) {
    if (limit_claims_.empty()) break;
    for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
         at = state.find_tenant(at->parent)) {
      if (auto reason = by_claim({at->id, WorkClass::kUnset, by_another})) return reason;
    }
    if (auto reason = by_claim({TenantId{}, work_of(wanted.parts), by_another})) return reason;
  }
  for (const Reservation& held : reservations_) {
    auto reason = delays(held.job_class, held.job, held.key,
                         [&] { return std::pair(held.start, held.trusting_until); });
    if (reason.has_value()) return reason;
  }
  return std::nullopt;
}

// The class's first job waits for this limit: who stands first of those has the claim. It will need what the
// others above it have left, too, once this one has room.
void Planner::claim_limits(const State& state, uint32_t job_class, const WaitReason& reason) {
  if (policies_.reservations == 0) return;
  if (reason.code != WaitCode::kQuota && reason.code != WaitCode::kPool) return;
  const JobClass& wanted = state.classes[job_class];
  const Amount amount = total_of(wanted.parts);
  std::vector<LimitKey> limits;
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    if (!has_limits(*at)) continue;
    if (limit_exceeded(*at, {}, amount) != Resource::kNone) return;  // Nothing that comes back is enough.
    limits.emplace_back(at->id, WorkClass::kUnset, at->id != reason.tenant);
  }
  const WorkClass work = work_of(wanted.parts);
  if (pools_.on() && !pools_.lends() && amount.gpu_thousandths() > 0) {
    if (amount.gpu_thousandths() > pools_.gpus_of(work == WorkClass::kOnline, capacity_.gpus) * kMilliPerGpu)
      return;
    limits.emplace_back(TenantId{}, work, reason.code != WaitCode::kPool);
  }
  const Job& head = head_of(state, job_class);
  if (state.find_promise(head.id) != nullptr) return;  // It is moved, and has what it needs.
  const bool is_pool = reason.code == WaitCode::kPool;
  const LimitClaim claim{.job_class = job_class,
                         .nearest = {reason.tenant, is_pool ? work : WorkClass::kUnset, false},
                         .job = head.id,
                         .key = key_of(state, head, info(job_class).head),
                         .start = {},
                         .found_at = {},
                         .trusting_until = {}};
  for (const LimitKey& limit : limits) {
    LimitClaim its = claim;
    if (const auto known = limit_starts_.find(limit);
        known != limit_starts_.end() && known->second.job == claim.job) {
      its.trusting_until = known->second.trusting_until;
      const bool recent = now_ < known->second.found_at + kCountAgain && now_ < known->second.start;
      if (recent && state.attempts.size() > kCountedAtOnce) {
        its.start = known->second.start;
        its.found_at = known->second.found_at;
      }
    }
    const auto [at, first] = limit_claims_.try_emplace(limit, its);
    const LimitClaim& other = at->second;
    if (first || (other.job != its.job && other.key < its.key && is_claimed(state, other))) continue;
    if (other.job == its.job && !its.trusting_until.valid()) its.trusting_until = other.trusting_until;
    at->second = std::move(its);
  }
}

// When so much of all its limits is expected to be back that its first job may start.
void Planner::find_limit_start(const State& state, LimitClaim& claim) const {
  const JobClass& first = state.classes[claim.job_class];
  const Amount wanted = total_of(first.parts);
  struct End {
    Time at;
    TenantId tenant;
    WorkClass work;
    Amount amount;
  };
  std::vector<End> ends;
  for (const auto& [key, attempt] : state.attempts) {
    const Job* job = state.jobs.find(key.job);
    if (job == nullptr || attempt.abandoned || job->attempt_count != attempt.number) continue;
    ends.push_back({.at = expected_end(state, attempt),
                    .tenant = job->tenant,
                    .work = work_of(state.class_of(*job).parts),
                    .amount = state.held_by(*job)});
  }
  // Jobs that start in this slice, and those that wait for their victims, give back after a whole run.
  const auto starts = [&](JobId id, const Amount& amount) {
    const Job* job = state.jobs.find(id);
    if (job == nullptr || amount == Amount{}) return;
    ends.push_back({.at = now_ + policies_.run_times->of_running(state, *job, Duration{}, now_),
                    .tenant = job->tenant,
                    .work = work_of(state.class_of(*job).parts),
                    .amount = amount});
  };
  for (const auto& [id, amount] : planned_jobs_) starts(id, amount);
  for (const auto& [id, promise] : state.promises) starts(id, promise.amount);
  std::sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.at < b.at; });
  const auto wait_for = [&](Amount used, auto&& counts, auto&& fits) {
    if (fits(used)) return;
    for (const End& end : ends) {
      if (!counts(end)) continue;
      used.add(negated(end.amount));
      if (!fits(used)) continue;
      claim.start = std::max(claim.start, end.at);
      return;
    }
    claim.start = kNever;
  };
  claim.start = now_;
  for (const Tenant* at = state.find_tenant(first.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    if (!has_limits(*at)) continue;
    Amount used_now = at->usage;
    used_now.add(planned_usage_of(at->id));
    wait_for(
        used_now, [&](const End& end) { return belongs_below(state, end.tenant, at->id); },
        [&](const Amount& used) { return limit_exceeded(*at, used, wanted) == Resource::kNone; });
  }
  if (pools_.on() && !pools_.lends()) {
    const WorkClass work = work_of(first.parts);
    const bool online = work == WorkClass::kOnline;
    Amount held;
    held.gpu_milli =
        (online ? state.online : state.batch).milli + (online ? planned_online_ : planned_batch_);
    const int64_t share = pools_.gpus_of(online, capacity_.gpus) * kMilliPerGpu;
    wait_for(
        held, [&](const End& end) { return end.work == work; },
        [&](const Amount& used) { return used.gpu_thousandths() + wanted.gpu_thousandths() <= share; });
  }
  if (!claim.trusting_until.valid()) claim.trusting_until = trust_until(now_, claim.start);
  claim.found_at = now_;
}

// Finds again when the limits of a promised class have room for its first job; true: at another time than
// before.
bool Planner::refresh_limits_from(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  const Time before = entry.limits_from;
  const std::optional<WaitReason> over = quota_block(state, job_class);
  if (!over.has_value()) {
    entry.limits_from = {};
  } else if (state.attempts.size() <= kCountedAtOnce || before <= now_ ||
             now_ >= entry.limits_counted_at + kCountAgain) {
    LimitClaim claim{.job_class = job_class};
    find_limit_start(state, claim);
    entry.limits_from = over->lifts_at.valid() ? std::max(claim.start, over->lifts_at) : claim.start;
    entry.limits_counted_at = now_;
  }
  return entry.limits_from != before;
}

void Planner::add_planned_usage(const State& state, const Job& job, const Amount& amount) {
  std::erase_if(limit_claims_, [&](const auto& entry) { return entry.second.job == job.id; });
  planned_jobs_.emplace_back(job.id, amount);
  for (const Tenant* at = state.find_tenant(job.tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    auto it = std::find_if(planned_usage_.begin(), planned_usage_.end(),
                           [&](const auto& entry) { return entry.first == at->id; });
    if (it == planned_usage_.end()) it = planned_usage_.insert(it, {at->id, Amount{}});
    it->second.add(amount);
    // A promised start of another job below the same limit may be untrue now.
    look_ =
        look_ || (has_limits(*at) && std::ranges::any_of(reservations_, [&](const Reservation& held) {
                    return held.job != job.id && belongs_below(state, info(held.job_class).tenant, at->id);
                  }));
  }
  if (guarantees_) planned_held_.add(state, job.tenant, amount);
  const bool online = work_of(state.class_of(job).parts) == WorkClass::kOnline;
  (online ? planned_online_ : planned_batch_) += amount.gpu_thousandths();
}

// Something of the limit came back, or who had the claim is gone.
void Planner::forget_claims(const State& state, TenantId tenant) {
  const auto count_again = [&](LimitClaim& claim) {
    if (state.attempts.size() <= kCountedAtOnce || now_ >= claim.found_at + kCountAgain) claim.found_at = {};
  };
  for (auto at = limit_claims_.lower_bound({tenant, WorkClass::kUnset, false});
       at != limit_claims_.end() && std::get<TenantId>(at->first) == tenant;) {
    LimitClaim& claim = at->second;
    if (std::get<bool>(at->first)) {  // It waits for another limit still, and may start earlier.
      count_again(claim);
      if (const auto own = limit_claims_.find(claim.nearest);
          own != limit_claims_.end() && own->second.job == claim.job)
        count_again(own->second);
      ++at;
      continue;
    }
    if (claim.found_at.valid()) limit_starts_[at->first] = claim;
    at = limit_claims_.erase(at);
  }
  if (limit_starts_.size() > kStartsKept) limit_starts_.clear();
}

// Jobs that wait behind another one below a limit of the tenant or of one above it are looked at again.
void Planner::wake_limited(const State& state, TenantId tenant) {
  if (over_quota_.empty()) return;
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    const auto first = over_quota_.lower_bound({at->id, 0});
    if (first != over_quota_.end() && first->first == at->id) freed_tenants_.insert(at->id);
  }
  if (!over_quota_.begin()->first.valid()) freed_tenants_.insert(TenantId{});
}

}  // namespace gpusched
