#include "forecast/changes.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched::forecast {
namespace {

/// Limits are proposed in whole ones of these.
constexpr Duration kLimitStep = minutes(1);

/// Asks the planner about one job with changed requests.
class Asker {
 public:
  Asker(World& world, JobId subject, Work& work) : world_(world), subject_(subject), work_(work) {
    const Job& found = world_.state().job_at(subject_);
    parts_ = world_.state().class_of(found).parts;
    part_ = parts_.front();
    limit_ = found.max_runtime;
  }

  const Part& part() const { return part_; }
  Duration limit() const { return limit_; }
  bool left() const { return asks_ < limits::kForecastAsksMax && !work_.over; }

  std::optional<Change> ask(ChangeKind kind, const Part& part, Duration limit) {
    if (!left()) return std::nullopt;
    ++asks_;
    if (!request(part, limit)) return std::nullopt;
    std::optional<PlanGroup> start = world_.would_start(subject_, work_);
    // Not asked for: what was accepted once may be more than its tenant may ask for by now.
    world_.put_back(JobUpdated{.change = change_of(part_, limit_)});
    if (!start.has_value() || !start->preemptions.empty()) return std::nullopt;
    return Change{.kind = kind, .part = part, .max_runtime = limit, .start = std::move(*start)};
  }

  /// The request as it is, with so many GPUs of the lender's guarantee moved to its tenant's.
  std::optional<Change> ask_lent(TenantId lender, int64_t gpus) {
    if (!left()) return std::nullopt;
    ++asks_;
    const TenantId borrower = world_.state().job_at(subject_).tenant;
    const UpdateTenant lender_before = guarantee_of(lender, 0);
    const UpdateTenant borrower_before = guarantee_of(borrower, 0);
    if (world_.apply(guarantee_of(lender, -gpus)).rejection.has_value()) return std::nullopt;
    std::optional<PlanGroup> start;
    if (!world_.apply(guarantee_of(borrower, gpus)).rejection.has_value()) {
      start = world_.would_start(subject_, work_);
      world_.put_back(TenantUpdated{.change = borrower_before, .at = world_.now()});
    }
    world_.put_back(TenantUpdated{.change = lender_before, .at = world_.now()});
    if (!start.has_value()) return std::nullopt;
    return Change{.kind = ChangeKind::kIdleGuarantee,
                  .part = part_,
                  .max_runtime = limit_,
                  .start = std::move(*start),
                  .lender = lender,
                  .lent_gpus = gpus};
  }

  /// The largest value in [low, high] with which it starts; it is tried whether the least one does.
  template <typename Set>
  std::optional<Change> largest(ChangeKind kind, int64_t low, int64_t high, Set&& set) {
    if (low > high) return std::nullopt;
    const auto with = [&](int64_t value) {
      Part part = part_;
      set(part, value);
      return ask(kind, part, limit_);
    };
    std::optional<Change> best = with(low);
    if (!best.has_value()) return std::nullopt;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (std::optional<Change> found = with(middle)) {
        best = std::move(found);
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return best;
  }

 private:
  /// The command that guarantees a tenant so many GPUs more than now.
  UpdateTenant guarantee_of(TenantId tenant, int64_t change) const {
    Amount amount = world_.state().tenant_at(tenant).guarantee;
    amount.gpus += change;
    return {.tenant = tenant, .given = kTenantGuaranteeGpus, .guarantee = amount};
  }
  UpdateJob change_of(const Part& part, Duration limit) const {
    std::vector<Part> parts = parts_;
    parts.front() = part;
    return {.job = subject_,
            .given = uint32_t{kJobParts} | kJobMaxRuntime,
            .max_runtime = limit,
            .spec = {},
            .parts = std::move(parts)};
  }
  bool request(const Part& part, Duration limit) {
    // With several parts none is changed: the answer would have to name the part too.
    if (parts_.size() > 1 && part != part_) return false;
    return !world_.apply(change_of(part, limit)).rejection.has_value();
  }

  World& world_;
  JobId subject_;
  Work& work_;
  std::vector<Part> parts_;
  Part part_;  ///< The first of them.
  Duration limit_;
  uint32_t asks_ = 0;
};

std::optional<Change> shorter_limit(Asker& asker, const WaitReason& reason, Time now) {
  if (!is_kept_back(reason)) return std::nullopt;
  // Before a reservation it must have ended, with what its end may take.
  const Duration span =
      reason.reserved_start - now -
      (reason.code == WaitCode::kReservedForOthers ? limits::kRuntimeSlack + milliseconds(1) : Duration{});
  const int64_t steps = span.ns / kLimitStep.ns;
  const Duration fits = kLimitStep * steps;
  if (steps < 1 || (asker.limit().ns > 0 && fits >= asker.limit())) return std::nullopt;
  return asker.ask(ChangeKind::kShorterLimit, asker.part(), fits);
}

/// The memory sizes of devices that are smaller than what is asked for, the largest first; then any.
std::optional<Change> less_gpu_memory(Asker& asker, const State& state) {
  if (asker.part().gpu_count == 0 || asker.part().gpu_memory_mb == 0) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const DeviceClass& kind : state.device_classes) {
    if (kind.memory_mb < asker.part().gpu_memory_mb) sizes.push_back(kind.memory_mb);
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const int64_t size : sizes) {
    Part part = asker.part();
    part.gpu_memory_mb = size;
    if (std::optional<Change> found = asker.ask(ChangeKind::kLessGpuMemory, part, asker.limit()))
      return found;
  }
  return std::nullopt;
}

/// The tenant, beside the job's own in the tree, whose idle guarantee would start it: of those that do, the
/// one with most to spare.
std::optional<Change> idle_guarantee(Asker& asker, const State& state, TenantId tenant) {
  const Tenant& own = state.tenant_at(tenant);
  const int64_t wanted = total_of({asker.part()}).gpus;
  const int64_t needed = own.usage.gpus - own.going.gpus + wanted - own.guarantee.gpus;
  if (wanted == 0 || needed <= 0) return std::nullopt;
  std::vector<std::pair<int64_t, TenantId>> lenders;
  for (const auto& [id, other] : state.tenants) {
    const int64_t idle = other.guarantee.gpus - (other.usage.gpus - other.going.gpus);
    if (id == tenant || other.deleted || other.parent != own.parent || idle < needed) continue;
    lenders.emplace_back(-idle, id);
  }
  std::sort(lenders.begin(), lenders.end());
  for (const auto& [idle, lender] : lenders) {
    if (std::optional<Change> found = asker.ask_lent(lender, needed)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::kShorterLimit:
      return "shorter_limit";
    case ChangeKind::kLessCpu:
      return "less_cpu";
    case ChangeKind::kLessMemory:
      return "less_memory";
    case ChangeKind::kLessGpuMemory:
      return "less_gpu_memory";
    case ChangeKind::kOtherModel:
      return "other_model";
    case ChangeKind::kFewerGpus:
      return "fewer_gpus";
    case ChangeKind::kFewerOfOtherModel:
      return "fewer_gpus_of_other_model";
    case ChangeKind::kIdleGuarantee:
      return "idle_guarantee";
  }
  UNREACHABLE();
}

JobId subject_of(const State& state, JobId job) {
  const Job* found = state.jobs.find(job);
  if (found == nullptr) return {};
  if (!found->is_array()) return found->is_queued() ? job : JobId{};
  for (const JobId element : state.array_at(job).live) {
    const Job* live = state.jobs.find(element);
    if (live != nullptr && live->is_queued()) return element;
  }
  return {};
}

std::vector<Change> smallest_changes(World& scratch, JobId job, std::size_t count, Work& work) {
  std::vector<Change> out;
  const JobId subject = subject_of(scratch.state(), job);
  if (!subject.valid() || !scratch.settle(work)) return out;
  const Job& found = scratch.state().job_at(subject);
  if (!found.is_queued()) return out;
  const WaitReason reason = scratch.planner().reason(found.job_class);
  const TenantId tenant = found.tenant;
  Asker asker(scratch, subject, work);
  const Part& part = asker.part();
  const auto add = [&](std::optional<Change> change) {
    if (change.has_value()) out.push_back(std::move(*change));
  };
  const auto wanted = [&] { return out.size() < count && asker.left(); };
  add(shorter_limit(asker, reason, scratch.now()));
  if (wanted() && part.cpu_milli > 1000) {
    add(asker.largest(ChangeKind::kLessCpu, 1, (part.cpu_milli - 1) / 1000,
                      [](Part& to, int64_t cores) { to.cpu_milli = static_cast<int32_t>(cores * 1000); }));
  }
  if (wanted() && part.memory_mb > 1024) {
    add(asker.largest(ChangeKind::kLessMemory, 1, (part.memory_mb - 1) / 1024,
                      [](Part& to, int64_t gigabytes) { to.memory_mb = gigabytes * 1024; }));
  }
  if (wanted()) add(less_gpu_memory(asker, scratch.state()));
  bool any_model = false;
  if (wanted() && !part.gpu_model.empty()) {
    Part other = part;
    other.gpu_model.clear();
    add(asker.ask(ChangeKind::kOtherModel, other, asker.limit()));
    any_model = !out.empty() && out.back().kind == ChangeKind::kOtherModel;
  }
  const auto set_count = [](Part& to, int64_t gpus) { to.gpu_count = static_cast<int32_t>(gpus); };
  // The places are told one by one, and how they lie to one another of two or more.
  const PlaceRequest* wishes = part.wishes();
  const bool named = wishes != nullptr && wishes->names_devices();
  const bool several = wishes != nullptr && (wishes->layout != Layout::kPack || wishes->bandwidth_min > 0);
  const int64_t least = several ? 2 : 1;
  if (wanted() && !named) add(asker.largest(ChangeKind::kFewerGpus, least, part.gpu_count - 1, set_count));
  if (wanted() && !part.gpu_model.empty() && !any_model && !named) {
    add(asker.largest(ChangeKind::kFewerOfOtherModel, least, part.gpu_count - 1, [](Part& to, int64_t gpus) {
      to.gpu_count = static_cast<int32_t>(gpus);
      to.gpu_model.clear();
    }));
  }
  if (wanted()) add(idle_guarantee(asker, scratch.state(), tenant));
  return out;
}

Trial try_submission(World& scratch, SubmitJobs command, Work& work) {
  CHECK(command.jobs.size() == 1);
  Trial trial;
  const Applied applied = scratch.apply(command);
  trial.rejection = applied.rejection;
  if (trial.rejection.has_value()) return trial;
  trial.job = JobId{applied.first_id};
  // Elements become jobs.
  while (scratch.state().next_due() <= scratch.now() && work.take(1)) scratch.apply(AdvanceTime{});
  trial.subject = subject_of(scratch.state(), trial.job);
  if (trial.subject.valid()) trial.start = scratch.would_start(trial.subject, work);
  return trial;
}

}  // namespace gpusched::forecast
