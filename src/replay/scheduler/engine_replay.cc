#include "replay/scheduler/engine_replay.h"

#include <algorithm>
#include <bit>
#include <boost/unordered/unordered_flat_map.hpp>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "replay/scheduler/replay_run_times.h"

namespace gpusched::replay {
namespace {

/// A trace's zero.
constexpr Time kZero = Time{} + seconds(1'700'000'000);
constexpr int32_t kMilliPerCore = 1000;
constexpr const char* kRackLabel = "topology.rack";  // As SchedulingPolicy names it by itself.

struct End {
  Time at;
  uint64_t order = 0;
  uint32_t job = 0;
  uint32_t attempt = 0;
  bool stopped = false;  ///< For another job, and not by itself.

  friend bool operator>(const End& a, const End& b) {
    return std::tie(a.at, a.order) > std::tie(b.at, b.order);
  }
};

class EngineReplay {
 public:
  EngineReplay(std::span<const TraceJob> jobs, const ReplayPolicy& policy, const ReplayOptions& options)
      : jobs_(jobs), options_(options), lives_(jobs.size()), planner_(make_policies(policy)) {
    outcome_.runs.resize(jobs.size());
    planner_.reset(state_);
    configure(policy);
    consents_ = policy.scheduling.preempt_by_attained;
  }

  Result<Unit> prepare() {
    const Result<Unit> built = options_.machines.empty() ? build_cluster() : register_machines();
    return built ? make_tenants() : built;
  }

  ReplayOutcome run() {
    while (arriving_ < jobs_.size() || unfinished_ > 0) {
      now_ = next_time();
      // Each pass of this loop is one cycle; what ends at the same instant because of it gives another one.
      do {
        while (state_.next_due() <= now_) apply(AdvanceTime{});
        end_what_is_over();
        submit_what_is_due();
        cycle();
      } while (!ends_.empty() && ends_.top().at <= now_);
      if (options_.watcher != nullptr) options_.watcher->settled(state_, *run_times_, now_);
    }
    outcome_.digest = state_.digest.value();
    return std::move(outcome_);
  }

 private:
  /// The state of a job of the trace while it is in the engine.
  struct Life {
    JobId id;
    uint32_t attempt = 0;
    bool runs = false;
    Duration left;  ///< Rest of its run, at the start of the attempt.
    Time started;   ///< Start of the attempt.
  };

  policy::PolicySet make_policies(const ReplayPolicy& policy) {
    policy::PolicySet set = policy::policies_for(policy.scheduling);
    auto run_times = std::make_unique<ReplayRunTimes>(jobs_, policy.knows);
    run_times_ = run_times.get();
    set.run_times = std::move(run_times);
    return set;
  }

  void configure(const ReplayPolicy& policy) {
    EngineConfig config = options_.config;
    config.feature_level = kFeatureLevel;
    config.policy = policy.scheduling;
    config.queue_size_max = INT64_MAX / 2;
    config.finished_jobs_max = INT64_MAX / 2;  // Forgetting them would be work that is not measured.
    config.finished_jobs_kept = limits::kSettingMax;
    apply(Configure{.config = config});
  }

  Result<Unit> build_cluster() {
    const ReplayCluster& cluster = options_.cluster;
    if (cluster.capacity() <= 0 || cluster.gpus_per_node > limits::kDevicesPerNodeMax ||
        cluster.nodes > limits::kNodesMax || cluster.pool > limits::kGpusPerJobMax) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "a cluster has 1 to " + std::to_string(limits::kNodesMax) + " nodes of 1 to " +
                              std::to_string(limits::kDevicesPerNodeMax) + " GPUs, a pool 1 to " +
                              std::to_string(limits::kGpusPerJobMax) + " GPUs",
                   .field = "nodes"};
    }
    if (cluster.pool > 0) register_node("pool", cluster.pool, 0, "");
    for (uint32_t i = 0; cluster.pool == 0 && i < cluster.nodes; ++i) {
      const std::string rack =
          cluster.racks > 0 ? "r" + std::to_string(uint64_t{i} * cluster.racks / cluster.nodes) : "";
      register_node("n" + std::to_string(i), limits::kAttemptsPerNodeMax, cluster.gpus_per_node, rack);
    }
    return Unit{};
  }

  Result<Unit> register_machines() {
    for (const RegisterNode& machine : options_.machines) {
      const Applied applied = apply(machine);
      if (!applied.rejection.has_value()) continue;
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "node " + machine.name +
                              " is refused: " + std::string(to_string(applied.rejection->code))};
    }
    return Unit{};
  }

  void register_node(const std::string& name, int64_t cores, uint32_t gpus, const std::string& rack) {
    RegisterNode node{.name = name, .instance = name, .boot_id = "replay", .version = {}};
    node.cpu_milli = cores * kMilliPerCore;
    node.memory_mb = 1;
    if (!rack.empty()) node.labels.push_back({.name = kRackLabel, .value = rack});
    for (uint32_t i = 0; i < gpus; ++i) {
      node.devices.push_back(
          {.uuid = name + "-" + std::to_string(i), .model = "GPU", .memory_mb = 1, .detail = {}});
    }
    const Applied applied = apply(node);
    CHECK(!applied.rejection.has_value());
  }

  // A replay that tries preemption among equals means that everybody agrees to it.
  Result<Unit> make_tenants() {
    if (consents_) {
      apply(UpdateTenant{.tenant = kDefaultTenant,
                         .given = kTenantAllowPreemption | kTenantCanPreempt,
                         .allow_preemption = true,
                         .can_preempt_others = true});
    }
    if (options_.tenant_of == TenantOf::kNobody) return Unit{};
    for (const TraceJob& job : jobs_) {
      const Result<TenantId> made =
          tenant_numbered(options_.tenant_of == TenantOf::kQueue ? job.queue : job.user);
      if (!made) return made.error();
    }
    return Unit{};
  }

  Result<TenantId> tenant_numbered(uint64_t number) {
    const auto known = tenants_.find(number);
    if (known != tenants_.end()) return known->second;
    CreateTenant command;
    if (number < options_.tenants.size()) command = options_.tenants[number];
    command.name = "t" + std::to_string(number);
    command.allow_preemption = command.allow_preemption || consents_;
    command.can_preempt_others = command.can_preempt_others || consents_;
    if (command.parent.valid()) {
      // Parents are older than their children, so this ends.
      const Result<TenantId> parent = tenant_numbered(command.parent.value);
      if (!parent) return parent.error();
      command.parent = *parent;
    }
    const Applied applied = apply(command);
    if (applied.rejection.has_value()) {
      return Error{
          .code = ErrorCode::kInvalidArgument,
          .message = command.name + " is refused: " + std::string(to_string(applied.rejection->code))};
    }
    tenants_[number] = TenantId{applied.first_id};
    return TenantId{applied.first_id};
  }

  TenantId tenant_of(const TraceJob& job) const {
    if (options_.tenant_of == TenantOf::kNobody) return kDefaultTenant;
    return tenants_.at(options_.tenant_of == TenantOf::kQueue ? job.queue : job.user);
  }

  Applied apply(const Command& command) {
    events_.clear();
    ++outcome_.commands;
    const Applied applied =
        gpusched::apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
    for (const Event& event : events_) {
      planner_.observe(state_, event);
      if (const auto* stop = std::get_if<StopRequested>(&event)) stop_requested(*stop);
      if (const auto* over = std::get_if<PromiseEnded>(&event); over != nullptr && over->asked_at.valid())
        outcome_.reclaims.push_back(over->at - over->asked_at);
    }
    return applied;
  }

  Time next_time() const {
    Time next = ends_.empty() ? kNever : ends_.top().at;
    if (arriving_ < jobs_.size()) next = std::min(next, kZero + jobs_[arriving_].submitted);
    if (unfinished_ > 0) next = std::min(next, planner_.next_look());
    // Only timers that let something go on count.
    if (state_.pending_backoff > 0) next = std::min(next, state_.next_due());
    CHECK(next != kNever);  // Every job that was accepted fits when the cluster is empty.
    return std::max(next, now_);
  }

  void submit_what_is_due() {
    while (arriving_ < jobs_.size() && kZero + jobs_[arriving_].submitted <= now_) {
      const uint32_t index = arriving_++;
      const TraceJob& job = jobs_[index];
      if (!submit(index, job)) ++outcome_.left_out;
    }
  }

  JobRequest request_of(uint32_t index, const TraceJob& job) const {
    if (!options_.requests.empty()) return options_.requests[index];
    Part part;
    const ReplayCluster& cluster = options_.cluster;
    if (cluster.pool > 0) {
      part.cpu_milli = static_cast<int32_t>(job.size) * kMilliPerCore;
    } else if (cluster.gangs && job.size > cluster.gpus_per_node && job.size % cluster.gpus_per_node == 0) {
      part.gpu_count = static_cast<int32_t>(cluster.gpus_per_node);
      part.member_count = static_cast<int32_t>(job.size / cluster.gpus_per_node);
      if (cluster.rack_required) {
        part.domain = DomainLevel::kRack;
        part.domain_required = true;
      }
    } else {
      part.gpu_count = static_cast<int32_t>(job.size);
    }
    return {.parts = {part}, .max_runtime = std::min(job.requested, limits::kRuntimeMax)};
  }

  bool submit(uint32_t index, const TraceJob& job) {
    SubmitJobs command{.tenant = tenant_of(job), .request_key = {}, .jobs = {request_of(index, job)}};
    command.jobs.front().require_feasible = true;
    // The planner may ask for its run time while it learns of it.
    run_times_->submitted(JobId{state_.last.sequence + 1}, index);
    const Applied applied = apply(command);
    if (applied.rejection.has_value()) return false;
    lives_[index] = {.id = JobId{applied.first_id}, .left = job.run};
    ++unfinished_;
    if (options_.watcher != nullptr) options_.watcher->submitted(lives_[index].id, index, now_);
    return true;
  }

  void cycle() {
    if (planner_.next_look() <= now_) planner_.look_at_promises(now_);
    bool more = planner_.wants_cycle();
    while (more) {
      ++outcome_.cycles;
      Planner::Slice slice = planner_.plan(state_, now_);
      more = slice.more;
      if (slice.plan.groups.empty()) continue;
      std::vector<JobId> placed;
      for (const PlanGroup& group : slice.plan.groups) {
        if (group.preemptions.empty()) placed.push_back(group.job);
      }
      apply(std::move(slice.plan));
      planner_.plan_applied(state_);
      for (const JobId id : placed) start(id);
    }
  }

  void start(JobId id) {
    const Job* job = state_.jobs.find(id);
    if (job == nullptr || job->state != JobState::kScheduled) return;
    const uint32_t index = run_times_->index_of(id);
    Life& life = lives_[index];
    ReplayOutcome::Run& run = outcome_.runs[index];
    if (job->attempt_count == 1) run.started = now_ - kZero;
    if (job->attempt_count > 1) life.left = life.left + options_.restart;
    life.attempt = job->attempt_count;
    life.runs = true;
    life.started = now_;
    run_times_->started(index, life.left, now_);
    begin_members(id, life.attempt);
    ends_.push({.at = now_ + life.left, .order = ++order_, .job = index, .attempt = life.attempt});
    if (options_.watcher != nullptr)
      options_.watcher->placed(state_, state_.attempt_at(id, life.attempt), index, now_);
  }

  void begin_members(JobId id, uint32_t number) {
    const Attempt attempt = state_.attempt_at(id, number);
    for (uint32_t i = 0; attempt.is_gang() && i < attempt.members.size(); ++i)
      apply(AttemptPrepared{.job = id, .attempt = number, .member = i, .node = attempt.members[i].node});
    for (uint32_t i = 0; i < attempt.members.size(); ++i)
      apply(AttemptStarted{
          .job = id, .attempt = number, .member = i, .node = attempt.members[i].node, .image_digest = {}});
  }

  void stop_requested(const StopRequested& stop) {
    if (stop.reason != StopReason::kPreempt) return;  // At its limit: the trace says that it ran on.
    const uint32_t index = run_times_->index_of(stop.job);
    ends_.push({.at = now_ + options_.grace,
                .order = ++order_,
                .job = index,
                .attempt = stop.attempt,
                .stopped = true});
  }

  void end_what_is_over() {
    while (!ends_.empty() && ends_.top().at <= now_) {
      const End end = ends_.top();
      ends_.pop();
      Life& life = lives_[end.job];
      if (!life.runs || life.attempt != end.attempt) continue;
      life.runs = false;
      if (end.stopped) {
        if (options_.starts_anew) {
          outcome_.lost_ms += jobs_[end.job].size * (now_ - life.started).ms();
          life.left = jobs_[end.job].run;
        } else {
          // Saved within its grace period: it goes on from here.
          life.left = life.left - (now_ - life.started);
        }
        ++outcome_.preemptions;
        ++outcome_.runs[end.job].preemptions;
        run_times_->stopped(end.job);
      } else {
        outcome_.runs[end.job].ended = now_ - kZero;
        outcome_.runs[end.job].ran = true;
        run_times_->finished(end.job, jobs_[end.job].run, now_);
        --unfinished_;
      }
      tell_end(life, end.stopped);
      if (end.stopped && options_.watcher != nullptr) options_.watcher->stopped(life.id, end.job, now_);
    }
  }

  void tell_end(const Life& life, bool stopped) {
    const Attempt attempt = state_.attempt_at(life.id, life.attempt);
    for (uint32_t i = 0; i < attempt.members.size(); ++i) {
      const Member& member = attempt.members[i];
      const Applied ended = apply(
          AttemptEnded{.job = life.id,
                       .attempt = life.attempt,
                       .member = i,
                       .node = member.node,
                       .outcome = {.cause = stopped ? EndCause::kStopped : EndCause::kExited, .detail = {}}});
      CHECK(!ended.rejection.has_value());
      for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
        const auto device = static_cast<uint32_t>(std::countr_zero(rest));
        apply(DeviceReleased{.node = member.node,
                             .device = device,
                             .generation = state_.node_at(member.node).devices[device].generation});
      }
    }
  }

  std::span<const TraceJob> jobs_;
  const ReplayOptions& options_;
  std::vector<Life> lives_;
  ReplayRunTimes* run_times_ = nullptr;  ///< The planner's.
  State state_;
  Planner planner_;
  Events events_;
  boost::unordered_flat_map<uint64_t, TenantId> tenants_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  Time now_ = kZero;
  uint64_t order_ = 0;
  uint32_t arriving_ = 0;
  uint64_t unfinished_ = 0;
  bool consents_ = false;
  ReplayOutcome outcome_;
};

}  // namespace

Result<ReplayOutcome> replay_engine(std::span<const TraceJob> jobs, const ReplayPolicy& policy,
                                    const ReplayOptions& options) {
  EngineReplay replay(jobs, policy, options);
  const Result<Unit> prepared = replay.prepare();
  if (!prepared) return prepared.error();
  return replay.run();
}

}  // namespace gpusched::replay
