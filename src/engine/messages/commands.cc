#include "engine/messages/commands.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/limits.h"
#include "base/text.h"
#include "model/identity/owner_table.h"
#include "model/topology.h"

namespace gpusched {
namespace {

bool known(EndCause cause) { return cause <= kEndCauseLast; }
bool known(DeviceCondition condition) {
  return condition >= DeviceCondition::kOk && condition <= DeviceCondition::kMissing;
}
bool between(int64_t low, int64_t value, int64_t high) { return low <= value && value <= high; }
bool between(Duration low, Duration value, Duration high) { return low <= value && value <= high; }

template <typename T>
bool is_sane(const T&) {
  return true;
}
bool is_sane(const AdmissionPolicy& policy) {
  const bool costs = std::all_of(policy.costs.begin(), policy.costs.end(), [](const TaskCost& cost) {
    return between(1, cost.tokens, limits::kTaskCostMax);
  });
  return costs && policy.rate_milli >= 0 && policy.burst >= 0 && policy.daily >= 0 &&
         policy.soft_queue >= 0 && policy.throttled_milli >= 0;
}
bool is_sane(const SchedulingPolicy& policy) {
  const std::vector<int64_t>& levels = policy.attained_levels;
  const bool rising =
      std::adjacent_find(levels.begin(), levels.end(), std::greater_equal<>()) == levels.end();
  return rising && policy.domain_labels.size() <= 3 && levels.size() <= limits::kAttainedLevelsMax &&
         (levels.empty() || (levels.front() > 0 && levels.back() <= limits::kAttainedGpuSecondsMax)) &&
         between(Duration{}, policy.overtaking, limits::kSettingMax);
}
bool is_sane(const Configure& command) {
  const EngineConfig& config = command.config;
  return between(0, config.aging_per_hour, limits::kAgingPerHourMax) && config.queue_size_max >= 0 &&
         config.finished_jobs_max >= 0 &&
         between(Duration{}, config.finished_jobs_kept, limits::kSettingMax) &&
         between(Duration{}, config.drain_limit, limits::kSettingMax) &&
         between(Duration{}, config.lost_after, limits::kSettingMax) &&
         between(0, config.auto_drain_percent, 100) && config.feature_level >= 0 &&
         is_sane(config.admission) && is_sane(config.policy) &&
         between(0, config.interactive_gpus_max, limits::kGpusPerJobMax) &&
         between(Duration{}, config.interactive_runtime_max, limits::kRuntimeMax) &&
         between(Duration{}, config.interactive_wait, seconds(limits::kInteractiveSecondsMax));
}
bool is_sane(const Usage& usage) {
  return between(0, usage.peak_memory_bytes, limits::kUsageMax) &&
         between(Duration{}, usage.cpu_time, Duration{limits::kUsageMax}) &&
         between(0, usage.gpu_busy_ms, limits::kUsageMax) &&
         between(0, usage.gpu_watched_ms, limits::kUsageMax) &&
         between(0, usage.peak_gpu_memory_mb, limits::kUsageMax);
}
bool is_sane(const AttemptEnded& command) {
  return known(command.outcome.cause) && is_sane(command.outcome.usage);
}
bool is_sane(const SetDeviceCondition& command) { return known(command.condition); }
bool is_sane(const Limits& own) {
  const ResourceLimits& limit = own.resources;
  const auto sane = [](const std::optional<int64_t>& value) { return value.value_or(0) >= 0; };
  return sane(limit.gpus) && sane(limit.gpu_memory_mb) && sane(limit.cpu_milli) && sane(limit.memory_mb) &&
         sane(limit.jobs) && between(0, own.waiting_max.value_or(0), limits::kWaitingJobsMax) &&
         between(0, own.soft_waiting_max.value_or(0), limits::kWaitingJobsMax);
}
bool is_sane(const Amount& amount) {
  return between(0, amount.gpus, limits::kGuaranteeMax) &&
         between(0, amount.gpu_memory_mb, limits::kGuaranteeMax) &&
         between(0, amount.cpu_milli, limits::kGuaranteeMax) &&
         between(0, amount.memory_mb, limits::kGuaranteeMax) &&
         between(0, amount.jobs, limits::kGuaranteeMax);
}
template <typename T>
bool has_sane_quota(const T& command) {
  return is_sane(command.limits) && is_sane(command.guarantee) &&
         between(Duration{}, command.gpu_time_window, limits::kGpuTimeWindowMax) &&
         between(0, command.gpu_time_max_ms, limits::kGpuTimeMaxMs);
}
bool is_sane(const CreateTenant& command) { return has_sane_quota(command); }
bool is_sane(const UpdateTenant& command) { return has_sane_quota(command); }
bool is_sane(const RegisterNode& command) {
  const bool devices =
      std::all_of(command.devices.begin(), command.devices.end(), [](const DeviceOffer& device) {
        return known(device.condition) && between(0, device.memory_mb, limits::kMegabytesMax) &&
               device.numa_node.value_or(0) >= 0;
      });
  const bool links = (command.links.empty() || command.links.size() == pair_count(command.devices.size())) &&
                     std::all_of(command.links.begin(), command.links.end(), Link::is_sound);
  return devices && links && command.features.size() <= limits::kNodeFeaturesMax &&
         command.labels.size() <= limits::kNodeLabelsMax &&
         between(0, command.cpu_milli, int64_t{limits::kCpuCoresMax} * 1000) &&
         between(0, command.memory_mb, limits::kMegabytesMax);
}
bool is_sane(Time at) { return Time{} <= at && at <= limits::kTimeMax; }
bool is_sane(const Part& part) {
  return (part.features & ~kFeaturesKnown) == 0 && part.work <= kWorkClassLast &&
         part.domain <= kDomainLevelLast && between(0, part.member_max, limits::kMembersMax) &&
         (part.wishes() == nullptr || part.wishes()->avoided.empty());
}
bool is_sane(const JobFlow& flow) {
  const bool dependencies =
      std::all_of(flow.dependencies.begin(), flow.dependencies.end(), [](const Dependency& one) {
        return one.kind >= DependencyKind::kAfterOk && one.kind <= kDependencyKindLast && !one.met &&
               one.parent.valid() == !one.index.has_value();
      });
  return dependencies && flow.array_at_once >= 0 && flow.dependencies.size() <= limits::kDependenciesMax &&
         flow.on_parent_failure <= OnParentFailure::kWait && is_sane(flow.begin_at) &&
         is_sane(flow.deadline) && between(Duration{}, flow.begin_after, limits::kBeginMax) &&
         between(Duration{}, flow.deadline_after, limits::kBeginMax);
}
bool is_sane(const RetryPolicy& retry) {
  return between(Duration{}, retry.kill_after_lost_contact, limits::kRuntimeMax) &&
         (retry.causes & ~kRetryKnown) == 0 && retry.exit_codes.view().size() <= 256;
}
bool is_sane(const UpdateJob& command) {
  return is_sane(command.begin_at) && is_sane(command.deadline) &&
         command.by.size() <= limits::kNameBytesMax &&
         between(Duration{}, command.begin_after, limits::kBeginMax) &&
         between(Duration{}, command.deadline_after, limits::kBeginMax) &&
         std::all_of(command.parts.begin(), command.parts.end(),
                     [](const Part& part) { return is_sane(part); }) &&
         between(Duration{}, command.max_runtime, limits::kRuntimeMax) &&
         between(-limits::kPriorityMax, command.priority, limits::kPriorityMax);
}
bool is_sane(const SetNodeAvailability& command) {
  return command.to == Availability::kInService || command.to == Availability::kDraining;
}
bool is_sane(const CheckpointSaved& command) {
  return between(Duration{} - limits::kRuntimeMax, command.age, limits::kRuntimeMax);
}
bool is_sane(const NoteDeviceFault& command) {
  return command.fault <= kFaultClassLast && command.code.size() <= limits::kLabelBytesMax &&
         command.detail.size() <= limits::kLabelBytesMax;
}
bool is_sane(const ReportWatchdogFinding& command) {
  return command.kind <= kWatchKindLast && command.action <= kWatchActionLast &&
         command.detail.size() <= limits::kLabelBytesMax &&
         between(Duration{}, command.age, limits::kRuntimeMax);
}
bool is_sane(const CommitPlan& command) {
  return std::all_of(command.groups.begin(), command.groups.end(),
                     [](const PlanGroup& group) { return group.preemptions.size() <= limits::kVictimsMax; });
}
bool is_sane(const MoveJobs& command) {
  return command.groups.size() <= limits::kMovesMax + 1 && command.by.size() <= limits::kNameBytesMax &&
         command.why.size() <= limits::kLabelBytesMax &&
         std::all_of(command.groups.begin(), command.groups.end(),
                     [](const PlanGroup& group) { return group.preemptions.size() <= limits::kMovesMax; });
}
bool is_sane(const RemoveNode& command) { return command.by.size() <= limits::kNameBytesMax; }
bool is_sane(const CancelJob& command) { return command.by.size() <= limits::kNameBytesMax; }
bool is_sane(const HoldJob& command) { return command.by.size() <= limits::kNameBytesMax; }
bool is_sane(const RequeueJob& command) { return command.by.size() <= limits::kNameBytesMax; }
bool is_sane(const PauseStarts& command) {
  return command.by.size() <= limits::kNameBytesMax && command.why.size() <= limits::kReasonBytesMax;
}
bool is_sane(const SetPools& command) {
  return command.by.size() <= limits::kNameBytesMax &&
         between(int64_t{0}, command.online_milli, int64_t{1000}) &&
         between(int64_t{0}, command.batch_milli, 1000 - command.online_milli);
}
bool is_sane(const LabelNode& command) { return command.set.size() <= limits::kNodeLabelsMax; }
bool is_sane(const MakeBooking& command) {
  return !command.name.empty() && command.name.size() <= limits::kNameBytesMax && is_sane(command.begin_at) &&
         between(Duration{}, command.begin_after, limits::kBookingMax) &&
         between(Duration{1}, command.length, limits::kBookingMax) &&
         between(Duration{}, command.every, limits::kBookingMax) &&
         command.users.size() <= limits::kBookingUsersMax && command.nodes.size() <= limits::kNodesMax;
}
bool is_sane(const CreateKey& command) {
  const AccessKey key{.id = {},
                      .tenant = command.tenant,
                      .name = command.name,
                      .kind = command.kind,
                      .prefix = command.prefix,
                      .hash = command.hash,
                      .bindings = command.bindings,
                      .unix_users = command.unix_users,
                      .created_by = command.by,
                      .created_at = {},
                      .expires_at = command.expires_at,
                      .revoked_at = {},
                      .revoked_by = {}};
  return is_possible(key) && is_sane(command.expires_at) && command.by.size() <= limits::kNameBytesMax;
}
bool is_sane(const RevokeKey& command) { return command.by.size() <= limits::kNameBytesMax; }
bool is_sane(const BindRole& command) {
  return index_of(command.role) < kRoleCount && command.by.size() <= limits::kNameBytesMax;
}
bool is_sane(const RecordPerson& command) {
  const bool is_new = !command.person.valid();
  const auto given = [&](PersonField field) { return (command.given & field) != 0; };
  const bool addressed = given(kPersonEmail) ? !command.email.empty() : !is_new;
  return addressed && command.given <= kPersonFields && command.email.size() <= limits::kNameBytesMax &&
         command.password.view().size() <= limits::kPasswordHashBytesMax &&
         index_of(command.role) < kRoleCount && command.by.size() <= limits::kNameBytesMax;
}
bool is_sane(const CreateNodeTicket& command) {
  const NodeTicket ticket{.id = {},
                          .node = command.node,
                          .prefix = command.prefix,
                          .hash = command.hash,
                          .created_by = command.by,
                          .created_at = {},
                          .expires_at = command.expires_at,
                          .used_by = {},
                          .identity = {}};
  return is_possible(ticket) && is_sane(command.expires_at) && command.by.size() <= limits::kNameBytesMax;
}
bool is_sane(const AdmitNode& command) {
  const NodeIdentity identity{.id = command.identity,
                              .node = command.node,
                              .key = command.key,
                              .admitted_by = {},
                              .admitted_at = {},
                              .renewed_at = {},
                              .expires_at = command.expires_at,
                              .revoked_at = {},
                              .revoked_by = {}};
  return is_possible(identity) && is_sane(command.expires_at) &&
         command.ticket.valid() != command.identity.valid();
}
bool is_sane(const RevokeNode& command) {
  return command.node.size() <= limits::kNameBytesMax && command.by.size() <= limits::kNameBytesMax;
}
bool is_sane(const SubmitJobs& command) {
  if (command.jobs.size() > limits::kBatchJobsMax || command.user.size() > limits::kNameBytesMax ||
      command.by.size() > limits::kNameBytesMax)
    return false;
  const bool owned = command.owner_kind != CallerKind{};
  if (owned ? !is_possible(command.owner_kind, command.owner) : !command.owner.empty()) return false;
  int64_t elements = 0;
  for (const JobRequest& job : command.jobs) {
    if (job.flow.size() > 1) return false;
    if (job.flow.empty()) continue;
    if (!well_formed(job.flow.front().array)) return false;
    elements += count_of(job.flow.front().array);
  }
  if (elements > limits::kArrayElementsMax) return false;
  return std::all_of(command.jobs.begin(), command.jobs.end(), [](const JobRequest& job) {
    const bool known_features =
        std::all_of(job.parts.begin(), job.parts.end(), [](const Part& part) { return is_sane(part); });
    return known_features && between(Duration{}, job.max_runtime, limits::kRuntimeMax) &&
           is_sane(job.retry) && (job.flow.empty() || is_sane(job.flow.front())) &&
           between(-limits::kPriorityMax, job.priority, limits::kPriorityMax) &&
           job.preemption_mode <= kPreemptionModeLast &&
           between(Duration{}, job.preempt_grace, seconds(limits::kPreemptGraceSecondsMax));
  });
}

}  // namespace

bool well_formed(const Command& command) {
  return std::visit([](const auto& concrete) { return is_sane(concrete); }, command);
}

namespace {

/// Looks at all fields of a struct for texts with control characters.
struct UnprintableSearch {
  /// Names of fields whose texts are names and words of people. Not what programs said, which may have lines.
  /// Nor labels that are to be removed: older ones may have such a character.
  static constexpr std::array<std::string_view, 14> kLooksAt = {
      "name",       "value", "by",    "email",   "organization", "request_key", "owner",
      "unix_users", "user",  "users", "booking", "task_type",    "gpu_model",   "gpu_models"};

  const char* found = nullptr;

  template <typename T>
  void operator()(uint32_t, const char* name, const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (has_control_character(value) &&
          std::find(kLooksAt.begin(), kLooksAt.end(), std::string_view(name)) != kLooksAt.end())
        found = name;
    } else if constexpr (kIsBoxed<T>) {
      (*this)(0, name, *value);
    } else if constexpr (kIsVector<T>) {
      for (const auto& element : value) (*this)(0, name, element);
    } else if constexpr (HasFields<T>) {
      T::fields(value, *this);
    }
  }
};

}  // namespace

const char* unprintable_field(const Command& command) {
  UnprintableSearch search;
  std::visit([&](const auto& concrete) { std::decay_t<decltype(concrete)>::fields(concrete, search); },
             command);
  return search.found;
}

uint32_t sequence_count(const Command& command) {
  const auto* submit = std::get_if<SubmitJobs>(&command);
  if (submit == nullptr || submit->jobs.empty()) return 1;
  uint32_t count = 0;
  for (const JobRequest& job : submit->jobs) count += job.sequence_count();
  return count;
}

std::string_view name_of(const Command& command) {
  static constexpr std::array<std::string_view, std::variant_size_v<Command>> kNames = {
      "configure",
      "advance_time",
      "create_tenant",
      "update_tenant",
      "delete_tenant",
      "register_node",
      "node_lease_lost",
      "node_lease_back",
      "confirm_node_dead",
      "set_device_condition",
      "submit_jobs",
      "cancel_job",
      "commit_plan",
      "attempt_started",
      "attempt_ended",
      "device_released",
      "device_still_busy",
      "update_job",
      "hold_job",
      "requeue_job",
      "set_node_availability",
      "node_validated",
      "label_node",
      "note_start",
      "checkpoint_saved",
      "make_booking",
      "cancel_booking",
      "note_device_heat",
      "attempt_prepared",
      "note_device_fault",
      "note_watch",
      "move_jobs",
      "remove_node",
      "pause_starts",
      "create_key",
      "revoke_key",
      "bind_role",
      "create_node_ticket",
      "admit_node",
      "revoke_node",
      "set_pools",
      "record_person"};
  return kNames[command.index()];
}

namespace {

/// A person who is active no more, has another role or is moved loses rights: whatever else it gives.
bool takes_rights(const RecordPerson& command) {
  const bool deactivates = (command.given & kPersonActive) != 0 && !command.active;
  const bool moves = (command.given & (kPersonTenant | kPersonRole)) != 0;
  return command.person.valid() && (deactivates || moves);
}
/// Closes the tenant to callers without a credential.
bool takes_rights(const UpdateTenant& command) {
  return (command.given & kTenantAnonymous) != 0 && !command.anonymous;
}

}  // namespace

bool is_new_work(const Command& command) {
  if (const auto* record = std::get_if<RecordPerson>(&command)) return !takes_rights(*record);
  if (const auto* update = std::get_if<UpdateTenant>(&command)) return !takes_rights(*update);
  return std::holds_alternative<SubmitJobs>(command) || std::holds_alternative<CreateTenant>(command) ||
         std::holds_alternative<CommitPlan>(command) || std::holds_alternative<Configure>(command) ||
         std::holds_alternative<UpdateJob>(command) || std::holds_alternative<HoldJob>(command) ||
         std::holds_alternative<LabelNode>(command) || std::holds_alternative<MakeBooking>(command) ||
         std::holds_alternative<MoveJobs>(command) || std::holds_alternative<CreateKey>(command) ||
         std::holds_alternative<CreateNodeTicket>(command) || std::holds_alternative<AdmitNode>(command) ||
         std::holds_alternative<SetPools>(command);
}

}  // namespace gpusched
