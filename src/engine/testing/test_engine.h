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

/// Node of a test.
struct Shape {
  int gpus = 0;
  std::string model = "NVIDIA A100-SXM4-80GB";
  int64_t gpu_memory_mb = 81'920;
  int64_t cpu_milli = 64'000;
  int64_t memory_mb = 512'000;
  std::vector<Label> labels = {};  ///< The agent's, sorted.
  std::vector<int> islands =
      {};             ///< Sizes of islands of NVLink; between them PCIe. None: links are not known.
  int numa_size = 0;  ///< Devices on each NUMA node; 0: not known.
  int mig = 0;        ///< Devices in MIG mode, the first ones.
};

/// Request of a test's job.
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
std::vector<int64_t> links_of(const std::vector<int>& islands);
JobRequest request_of(const Want& want);
RegisterNode registration_of(std::string_view name, const Shape& shape, std::string_view boot_id = "boot-1");
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
  Applied apply(const Command& command);

  /// Moves time on and lets everything fire that is due.
  void advance(Duration by);

  /// Lets those that wait for a job that ended learn it, and arrays go on.
  void settle();

  NodeId add_node(std::string_view name, const Shape& shape);
  TenantId add_tenant(std::string_view name, TenantId parent = {}, Limits limits = {});
  Applied try_submit(const Want& want, std::string key = {}, std::string user = {});
  JobId submit(const Want& want);
  JobId submit_gpus(int32_t gpus) { return submit({.gpus = gpus}); }

  /// One whole scheduling cycle; the groups that were placed.
  std::vector<PlanGroup> cycle();

  const Job& job(JobId id) const;
  const Node& node(NodeId id) const { return *state_.find_node(id); }
  const Device& device(NodeId id, uint32_t index) const { return node(id).devices[index]; }
  const Tenant& tenant(TenantId id) const { return *state_.find_tenant(id); }
  JobState state_of(JobId id) const { return job(id).state; }
  WaitCode wait_code(JobId id) const { return planner_.reason(job(id).job_class).code; }

  /// All its members, or those that can: what the last one was answered.
  Applied started(JobId id);
  Applied ended(JobId id, const Outcome& outcome = exited(0));
  /// Nodes of the present attempt's members; none without such an attempt.
  std::vector<NodeId> member_nodes(JobId id) const;
  Applied released(NodeId id, uint32_t index);
  /// Submits, places and starts; the cluster must have room.
  JobId run(const Want& want);
  /// Ends with exit code 0, and its devices are seen empty.
  void finish(JobId id);
  void release_all();
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
void expect_rejected(const Applied& applied, RejectionCode code);

}  // namespace gpusched::testing
