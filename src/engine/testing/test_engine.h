#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "model/topology.h"

/// For tests only: an engine with an observer's state and a planner beside it, on a clock that the test sets.
namespace gpusched::testing {

/// What a node of a test offers.
struct Shape {
  int gpus = 0;
  std::string model = "NVIDIA A100-SXM4-80GB";
  int64_t gpu_memory_mb = 81'920;
  int64_t cpu_milli = 64'000;
  int64_t memory_mb = 512'000;
  std::vector<Label> labels = {};  ///< The agent's, sorted.
  std::vector<int> islands =
      {};             ///< Sizes of islands of NVLink; between them PCIe. None: links are not known.
  int numa_size = 0;  ///< So many devices on each NUMA node; 0: not known.
  int mig = 0;        ///< So many devices, the first, are in MIG mode.
};

/// What a job of a test wants.
struct Want {
  int32_t gpus = 0;
  int32_t cpu_milli = 0;
  int64_t memory_mb = 0;
  std::string model = {};
  int64_t gpu_memory_mb = 0;
  int32_t priority = 0;
  TenantId tenant = kDefaultTenant;
  RetryPolicy retry = {};
  Duration max_runtime = {};
  bool require_feasible = false;
  bool held = false;
  uint32_t features = 0;
  std::vector<JobFlow> flow = {};
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  bool preemption_exempt = false;
  WorkClass work = WorkClass::kUnset;
  std::string task_type = {};
  bool interactive = false;
  Duration preempt_grace = {};
  std::string booking = {};
  int32_t gpu_milli = 0;
  int64_t gpu_share_mb = 0;
  int32_t members = 1;
  int32_t members_max = 0;
  DomainLevel domain = DomainLevel::kAny;
  bool domain_required = false;
  bool one_member_per_node = false;
  bool may_span_nodes = false;
  /// Before all these members one that leads, with so many GPUs; negative: none.
  int32_t leader_gpus = -1;
  std::vector<PlaceRequest> place = {};
  std::string mig = {};  ///< A MIG slice of this profile, beside nothing else of GPUs.
};

inline constexpr int64_t kNvlinkGbs = 300;
inline constexpr int64_t kPcieGbs = 16;

/// Links of devices that form islands one after the other.
inline std::vector<int64_t> links_of(const std::vector<int>& islands) {
  std::vector<int> island_of;
  for (std::size_t i = 0; i < islands.size(); ++i)
    island_of.insert(island_of.end(), static_cast<std::size_t>(islands[i]), static_cast<int>(i));
  std::vector<int64_t> links;
  for (std::size_t a = 0; a < island_of.size(); ++a) {
    for (std::size_t b = a + 1; b < island_of.size(); ++b) {
      const bool same = island_of[a] == island_of[b];
      links.push_back(
          Link{.kind = same ? LinkKind::kNvlink : LinkKind::kNuma, .gbs = same ? kNvlinkGbs : kPcieGbs}
              .code());
    }
  }
  return links;
}

inline JobRequest request_of(const Want& want) {
  JobRequest request{.priority = want.priority,
                     .parts = {Part{.member_count = want.members,
                                    .gpu_count = want.gpus,
                                    .gpu_memory_mb = want.gpu_memory_mb,
                                    .cpu_milli = want.cpu_milli,
                                    .memory_mb = want.memory_mb,
                                    .gpu_model = want.model,
                                    .features = want.features,
                                    .work = want.work,
                                    .gpu_milli = want.gpu_milli,
                                    .gpu_share_mb = want.gpu_share_mb,
                                    .member_max = want.members_max,
                                    .domain = want.domain,
                                    .domain_required = want.domain_required,
                                    .one_member_per_node = want.one_member_per_node,
                                    .may_span_nodes = want.may_span_nodes,
                                    .place = want.place}},
                     .max_runtime = want.max_runtime,
                     .retry = want.retry,
                     .require_feasible = want.require_feasible,
                     .spec = Blob("spec"),
                     .held = want.held,
                     .flow = want.flow,
                     .preemption_mode = want.preemption_mode,
                     .preemption_exempt = want.preemption_exempt,
                     .booking = want.booking,
                     .task_type = want.task_type,
                     .interactive = want.interactive,
                     .preempt_grace = want.preempt_grace};
  if (!want.mig.empty()) {
    Part& part = request.parts.front();
    part.gpu_count = 1;
    part.gpu_milli = mig::milli_of(want.mig);
    part.gpu_share_mb = mig::named_mb_of(want.mig);
    part.mig_profile = want.mig;
  }
  if (want.leader_gpus < 0) return request;
  Part leader = request.parts.front();
  leader.member_count = 1;
  leader.member_max = 0;
  leader.gpu_count = want.leader_gpus;
  request.parts.insert(request.parts.begin(), leader);
  return request;
}

inline RegisterNode registration_of(std::string_view name, const Shape& shape,
                                    std::string_view boot_id = "boot-1") {
  RegisterNode offer{.name = std::string(name),
                     .instance = std::string(name) + "-data",
                     .boot_id = std::string(boot_id),
                     .version = "1",
                     .cpu_milli = shape.cpu_milli,
                     .memory_mb = shape.memory_mb};
  for (int i = 0; i < shape.gpus; ++i) {
    offer.devices.push_back(DeviceOffer{.uuid = "GPU-" + std::string(name) + "-" + std::to_string(i),
                                        .model = shape.model,
                                        .memory_mb = shape.gpu_memory_mb,
                                        .numa_plus_one = shape.numa_size > 0 ? 1 + i / shape.numa_size : 0,
                                        .mig = i < shape.mig});
  }
  offer.labels = shape.labels;
  offer.links = links_of(shape.islands);
  return offer;
}

inline Outcome exited(int32_t code) { return {.cause = EndCause::kExited, .exit_code = code, .detail = {}}; }

class TestEngine {
 public:
  explicit TestEngine(policy::PolicySet policies = policy::default_policies())
      : planner_(std::move(policies)) {
    planner_.reset(state_);
  }

  const State& state() const { return state_; }
  Planner& planner() { return planner_; }
  /// Those of the newest command.
  const Events& events() const { return events_; }
  Digest digest() const { return state_.digest; }
  Time now() const { return now_; }
  void set_now(Time now) { now_ = now; }

  /// Applies at `now`, lets the observer follow and the planner learn.
  Applied apply(const Command& command) {
    events_.clear();
    const Digest before = state_.digest;
    const Applied applied =
        gpusched::apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
    follow(followed_, events_.data(), events_.size(), state_.last);
    EXPECT_EQ(followed_.digest, state_.digest);
    if (applied.rejection.has_value()) {
      EXPECT_TRUE(events_.empty());
      EXPECT_EQ(state_.digest, before);
    }
    for (const Event& event : events_) planner_.observe(state_, event);
    return applied;
  }

  /// Moves time on and lets everything fire that is due.
  void advance(Duration by) {
    now_ = now_ + by;
    while (state_.next_due() <= now_) apply(AdvanceTime{});
    if (planner_.next_look() <= now_) planner_.look_at_promises(now_);
  }

  /// Lets those that wait for a job that ended learn it, and arrays go on.
  void settle() {
    while (!state_.settling.empty() || !state_.due_arrays.empty()) apply(AdvanceTime{});
  }

  NodeId add_node(std::string_view name, const Shape& shape) {
    return NodeId{apply(registration_of(name, shape)).first_id};
  }
  TenantId add_tenant(std::string_view name, TenantId parent = {}, Limits limits = {}) {
    return TenantId{
        apply(CreateTenant{.name = std::string(name), .parent = parent, .limits = limits}).first_id};
  }
  Applied try_submit(const Want& want, std::string key = {}, std::string user = {}) {
    return apply(SubmitJobs{.tenant = want.tenant,
                            .request_key = std::move(key),
                            .jobs = {request_of(want)},
                            .user = std::move(user)});
  }
  JobId submit(const Want& want) {
    const Applied applied = try_submit(want);
    EXPECT_FALSE(applied.rejection.has_value());
    return JobId{applied.first_id};
  }
  JobId submit_gpus(int32_t gpus) { return submit({.gpus = gpus}); }

  /// One whole scheduling cycle; the groups that were placed.
  std::vector<PlanGroup> cycle() {
    std::vector<PlanGroup> groups;
    for (int slice = 0; slice < 10'000; ++slice) {
      Planner::Slice planned = planner_.plan(state_, now_);
      if (!planned.plan.groups.empty()) {
        apply(planned.plan);
        planner_.plan_applied(state_);
        groups.insert(groups.end(), planned.plan.groups.begin(), planned.plan.groups.end());
      }
      if (!planned.more) return groups;
    }
    ADD_FAILURE() << "a cycle without end";
    return groups;
  }

  const Job& job(JobId id) const {
    const Job* found = state_.jobs.find(id);
    EXPECT_NE(found, nullptr);
    return *found;
  }
  const Node& node(NodeId id) const { return *state_.find_node(id); }
  const Device& device(NodeId id, uint32_t index) const { return node(id).devices[index]; }
  const Tenant& tenant(TenantId id) const { return *state_.find_tenant(id); }
  JobState state_of(JobId id) const { return job(id).state; }
  WaitCode wait_code(JobId id) const { return planner_.reason(job(id).job_class).code; }

  /// All its members, or those that can: what the last one was answered.
  Applied started(JobId id) {
    Applied applied =
        apply(AttemptStarted{.job = id, .attempt = job(id).attempt_count, .node = job(id).node});
    for (uint32_t member = 1; member < member_nodes(id).size(); ++member) {
      applied = apply(AttemptStarted{
          .job = id, .attempt = job(id).attempt_count, .member = member, .node = member_nodes(id)[member]});
    }
    return applied;
  }
  Applied ended(JobId id, const Outcome& outcome = exited(0)) {
    const uint32_t attempt = job(id).attempt_count;
    const std::vector<NodeId> nodes = member_nodes(id);
    Applied applied =
        apply(AttemptEnded{.job = id, .attempt = attempt, .node = job(id).node, .outcome = outcome});
    for (uint32_t member = 1; member < nodes.size(); ++member) {
      applied = apply(AttemptEnded{
          .job = id, .attempt = attempt, .member = member, .node = nodes[member], .outcome = outcome});
    }
    return applied;
  }
  /// Of the present attempt; none when there is no such thing.
  std::vector<NodeId> member_nodes(JobId id) const {
    std::vector<NodeId> nodes;
    const Attempt* attempt = state_.find_attempt(id, job(id).attempt_count);
    if (attempt == nullptr) return nodes;
    for (const Member& member : attempt->members) nodes.push_back(member.node);
    return nodes;
  }
  Applied released(NodeId id, uint32_t index) {
    return apply(DeviceReleased{.node = id, .device = index, .generation = device(id, index).generation});
  }
  /// Submits, places and starts; the cluster must have room.
  JobId run(const Want& want) {
    const JobId id = submit(want);
    cycle();
    EXPECT_EQ(state_of(id), JobState::kScheduled);
    started(id);
    return id;
  }
  /// Ends with exit code 0, and its devices are seen empty.
  void finish(JobId id) {
    ended(id);
    release_all();
  }
  void release_all() {
    for (std::size_t slot = 0; slot < state_.nodes.size(); ++slot) {
      for (uint32_t i = 0; i < state_.nodes[slot].devices.size(); ++i) {
        const Device device = state_.nodes[slot].devices[i];
        if (device.state == DeviceState::kDraining) released(state_.nodes[slot].id, i);
        for (const Share& share : device.shares) {
          if (!share.draining()) continue;
          apply(DeviceReleased{.node = state_.nodes[slot].id,
                               .device = i,
                               .generation = device.generation,
                               .share_of = share.held_by});
        }
      }
    }
  }
  template <typename E>
  int count_events() const {
    int count = 0;
    for (const Event& event : events_) count += std::holds_alternative<E>(event) ? 1 : 0;
    return count;
  }

 private:
  State state_;
  State followed_;
  Events events_;
  Planner planner_;
  Time now_ = Time{} + seconds(1'700'000'000);
};

/// Expects a rejection with this code.
inline void expect_rejected(const Applied& applied, RejectionCode code) {
  ASSERT_TRUE(applied.rejection.has_value());
  EXPECT_EQ(applied.rejection->code, code) << to_string(applied.rejection->code);
}

}  // namespace gpusched::testing
