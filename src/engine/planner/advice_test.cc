#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"

// Actions that a reason names as lifting it start the job, or give it another reason: the next thing in its
// way. Some such actions, one after the other, always start it. In some worlds the job and others are tasks
// of users.
namespace gpusched {
namespace {

using testing::TestEngine;

constexpr int kWorlds = 400;
constexpr int kStepsMax = 12;

class Advised {
 public:
  Advised(uint64_t seed, bool has_tasks)
      : prng_(seed),
        tasks_(seed),
        has_tasks_(has_tasks),
        engine_(has_tasks ? testing::policies_with_tasks(testing::RandomTasks::kWeightMax)
                          : policy::default_policies()) {
    EngineConfig config{.feature_level = kFeatureLevel};
    if (prng_.chance(300)) config.pools = {.online_milli = 500, .batch_milli = 500};
    engine_.apply(Configure{.config = config});
    Limits limits;
    if (prng_.chance(400)) limits.set(Resource::kGpus, prng_.between(0, 4));
    if (prng_.chance(200)) limits.set(Resource::kCpu, prng_.between(1, 6) * 1'000);
    if (prng_.chance(200)) limits.set(Resource::kJobs, prng_.between(1, 3));
    if (prng_.chance(200)) limits.set(Resource::kGpuMemory, prng_.between(1, 4) * 81'920);
    lab_ = engine_.add_tenant("lab", {}, {});
    for (int64_t count = prng_.between(0, 3); count > 0; --count)
      add_node(prng_.between(0, 4), prng_.between(3, 8));
    for (int64_t count = prng_.between(0, 4); count > 0; --count) {
      running_.push_back(submit(prng_.chance(500) ? lab_ : kDefaultTenant, 2));
      engine_.cycle();
      if (engine_.state_of(running_.back()) == JobState::kScheduled) {
        engine_.started(running_.back());
      } else {
        engine_.apply(CancelJob{.job = running_.back()});
        running_.pop_back();
      }
    }
    for (const NodeId node : nodes_) {
      if (prng_.chance(300)) drain(node);
      if (prng_.chance(100)) engine_.apply(NodeLeaseLost{.node = node});
    }
    waits_ = submit(lab_, 5);
    engine_.apply(UpdateTenant{.tenant = lab_,
                               .given = kTenantMaxGpus | kTenantMaxCpu | kTenantMaxJobs | kTenantMaxGpuMemory,
                               .limits = limits});
  }

  void check() {
    for (int step = 0; step < kStepsMax; ++step) {
      engine_.cycle();
      if (engine_.state_of(waits_) != JobState::kPending) return;
      const WaitReason reason = engine_.planner().reason(engine_.job(waits_).job_class);
      said_ += "\n" + std::string(to_string(reason.code)) + ": " + describe(reason);
      // One of several things that may lift it does.
      tried_ = reason == before_ ? tried_ + 1 : 0;
      before_ = reason;
      const std::vector<std::string> lifts = lifted_by(reason);
      ASSERT_LT(tried_, lifts.size()) << "all of it was carried out, and it is said again" << said_;
      carry_out(reason, lifts[tried_]);
      engine_.advance(seconds(1));
    }
    ADD_FAILURE() << "all was done, and it does not start" << said_;
  }

 private:
  JobId submit(TenantId tenant, int64_t gpus_max) {
    testing::Want want{.gpus = static_cast<int32_t>(prng_.between(0, gpus_max)),
                       .cpu_milli = static_cast<int32_t>(prng_.between(0, 5)) * 1'000,
                       .memory_mb = prng_.between(0, 5) * 1'000,
                       .tenant = tenant};
    if (gpus_max > 2 && prng_.chance(200)) want.place = {{.labels = {{.name = "zone", .value = "eu"}}}};
    if (gpus_max > 2 && want.gpus > 0 && prng_.chance(200)) want.model = "NVIDIA H100";
    if (prng_.chance(500)) want.max_runtime = hours(1);
    if (!has_tasks_ || !tasks_.prng().chance(500)) return engine_.submit(want);
    Prng& prng = tasks_.prng();
    want.gpus = 1;
    want.gpu_milli = static_cast<int32_t>(prng.between(1, 9)) * 100;
    if (prng.chance(700)) want.gpu_share_mb = prng.between(1, 8) * 8'000;
    JobRequest request = testing::request_of(want);
    request.spec = tasks_.some_spec();
    return JobId{engine_.apply(SubmitJobs{.tenant = tenant, .jobs = {request}}).first_id};
  }
  void add_node(int64_t gpus, int64_t cores, const char* model = "NVIDIA A100-SXM4-80GB") {
    const std::string name = "n" + std::to_string(nodes_.size());
    nodes_.push_back(engine_.add_node(name, {.gpus = static_cast<int>(gpus),
                                             .model = model,
                                             .cpu_milli = cores * 1'000,
                                             .memory_mb = prng_.between(5, 8) * 1'000}));
  }
  void drain(NodeId node) {
    engine_.apply(
        SetNodeAvailability{.node = node, .to = Availability::kDraining, .by = "op", .reason = "repair"});
  }
  void label(NodeId node) {
    engine_.apply(LabelNode{.node = node, .set = {{.name = "zone", .value = "eu"}}});
  }
  void raise(const WaitReason& reason) {
    UpdateTenant change{.tenant = reason.tenant};
    change.limits.set(reason.resource, reason.current + reason.requested);
    change.given = reason.resource == Resource::kGpus        ? kTenantMaxGpus
                   : reason.resource == Resource::kGpuMemory ? kTenantMaxGpuMemory
                   : reason.resource == Resource::kCpu       ? kTenantMaxCpu
                   : reason.resource == Resource::kMemory    ? kTenantMaxMemory
                                                             : kTenantMaxJobs;
    engine_.apply(change);
  }
  void carry_out(const WaitReason& reason, const std::string& lift) {
    said_ += "; " + lift;
    if (lift == "NodeAdded") {
      add_node(8, 16, reason.wanted.gpu_model.empty() ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H100");
      if (reason.wanted.wishes() != nullptr) label(nodes_.back());
    } else if (lift == "NodeBack") {
      for (const NodeId node : nodes_) {
        if (engine_.node(node).state == NodeState::kUnreachable) engine_.apply(NodeLeaseBack{.node = node});
      }
    } else if (lift == "NodeResumed") {
      for (const NodeId node : nodes_)
        engine_.apply(SetNodeAvailability{.node = node, .to = Availability::kInService, .by = "op"});
    } else if (lift == "NodeLabeled") {
      for (const NodeId node : nodes_) label(node);
    } else if (lift == "QuotaRaised") {
      raise(reason);
    } else if (lift == "PoolChanged") {
      engine_.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    } else if (lift == "JobEnded") {
      for (const JobId job : running_) engine_.finish(job);
      running_.clear();
    } else {
      FAIL() << "lifted by " << lift << said_;
    }
  }

  Prng prng_;
  testing::RandomTasks tasks_;
  const bool has_tasks_;
  TestEngine engine_;
  TenantId lab_;
  std::vector<NodeId> nodes_;
  std::vector<JobId> running_;
  JobId waits_;
  std::optional<WaitReason> before_;
  std::size_t tried_ = 0;  ///< How many of the things that may lift it.
  std::string said_;
};

class Advice : public ::testing::TestWithParam<bool> {};

TEST_P(Advice, CarriedOutItStartsTheJobOrNamesTheNextThingInItsWay) {
  for (uint64_t seed = 1; seed <= kWorlds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Advised(seed, GetParam()).check();
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, Advice, ::testing::Bool());

}  // namespace
}  // namespace gpusched
