#include <gtest/gtest.h>

#include <algorithm>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

// Nodes in and out of service: validation, drains, faults, labels and features.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class NodeServiceTest : public ::testing::Test {
 protected:
  Applied drain(NodeId node, std::string reason = "new disk") {
    return engine.apply(SetNodeAvailability{
        .node = node, .to = Availability::kDraining, .by = "operator", .reason = std::move(reason)});
  }
  Applied resume(NodeId node) {
    return engine.apply(SetNodeAvailability{.node = node, .to = Availability::kInService, .by = "operator"});
  }
  NodeId add_validating(std::string_view name, std::string_view boot = "boot-1") {
    RegisterNode offer = registration_of(name, {.gpus = 2}, boot);
    offer.validates = true;
    return NodeId{engine.apply(offer).first_id};
  }
  Applied validated(NodeId node, bool passed, std::string boot = "boot-1") {
    return engine.apply(NodeValidated{
        .node = node, .boot_id = std::move(boot), .passed = passed, .detail = passed ? "" : "disk full"});
  }
  Availability availability(NodeId node) const { return engine.node(node).availability; }
  /// Runs a job of the tenant on whatever node has room, and ends it so.
  NodeId fail_one(TenantId tenant, EndCause cause) {
    const JobId job = engine.submit({.gpus = 1, .tenant = tenant, .retry = {.system_retries = -1}});
    engine.cycle();
    EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
    const NodeId node = engine.job(job).node;
    engine.ended(job, {.cause = cause, .detail = "no such driver"});
    engine.release_all();
    if (!is_final(engine.state_of(job))) engine.apply(CancelJob{.job = job});
    return node;
  }
  TestEngine engine;
};

TEST_F(NodeServiceTest, ADrainingNodeTakesNoNewWorkAndWhatRunsGoesOn) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId running = engine.run({.gpus = 1});
  drain(node);
  const JobId waiting = engine.submit_gpus(1);
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.wait_code(waiting), WaitCode::kNodesHeld);
  EXPECT_EQ(engine.state_of(running), JobState::kRunning);
  engine.finish(running);
  EXPECT_TRUE(engine.cycle().empty());
  resume(node);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(NodeServiceTest, APlanOntoANodeThatDrainsMeanwhileIsStale) {
  const NodeId node = engine.add_node("n1", {});
  const JobId job = engine.submit({.cpu_milli = 1000});
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  ASSERT_EQ(slice.plan.groups.size(), 1u);
  drain(node);
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
}

TEST_F(NodeServiceTest, WhoDrainedAndWhyIsKept) {
  const NodeId node = engine.add_node("n1", {});
  drain(node, "new disk");
  EXPECT_EQ(engine.node(node).availability_by, "operator");
  EXPECT_EQ(engine.node(node).availability_reason, "new disk");
  EXPECT_EQ(engine.node(node).availability_since, engine.now());
  const Time since = engine.now();
  engine.advance(minutes(1));
  drain(node, "new disk and memory");
  EXPECT_EQ(engine.node(node).availability_reason, "new disk and memory");
  EXPECT_EQ(engine.node(node).availability_since, since);
}

TEST_F(NodeServiceTest, ANewNodeThatValidatesTakesNoWorkBeforeItPassed) {
  const NodeId node = add_validating("n1");
  const JobId job = engine.submit_gpus(1);
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.wait_code(job), WaitCode::kNodesHeld);
  validated(node, false);
  EXPECT_EQ(engine.node(node).availability_reason, "disk full");
  EXPECT_TRUE(engine.cycle().empty());
  validated(node, true);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(NodeServiceTest, ARebootedNodeValidatesAgainAndARestartedAgentDoesNot) {
  const NodeId node = add_validating("n1");
  validated(node, true);
  add_validating("n1");
  EXPECT_EQ(availability(node), Availability::kInService);
  add_validating("n1", "boot-2");
  EXPECT_EQ(availability(node), Availability::kValidating);
}

TEST_F(NodeServiceTest, AVerdictOfAnEarlierBootSaysNothing) {
  const NodeId node = add_validating("n1");
  add_validating("n1", "boot-2");
  expect_rejected(validated(node, true, "boot-1"), RejectionCode::kStale);
  EXPECT_EQ(availability(node), Availability::kValidating);
}

TEST_F(NodeServiceTest, ADrainOutlastsRebootsAndChecks) {
  const NodeId node = add_validating("n1");
  validated(node, true);
  drain(node);
  add_validating("n1", "boot-2");
  validated(node, true, "boot-2");
  EXPECT_EQ(availability(node), Availability::kDraining);
  EXPECT_EQ(engine.node(node).availability_reason, "new disk");
}

TEST_F(NodeServiceTest, ANodeInServiceWhoseChecksFailLaterIsHeld) {
  const NodeId node = add_validating("n1");
  validated(node, true);
  validated(node, false);
  EXPECT_EQ(availability(node), Availability::kValidating);
  EXPECT_EQ(engine.node(node).availability_by, "agent");
}

TEST_F(NodeServiceTest, ANodeFaultHoldsTheNodeAndCostsTheJobNothing) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId job = engine.run({.gpus = 1, .retry = {.system_retries = -1}});
  engine.ended(job, {.cause = EndCause::kNodeFault, .detail = "the prolog failed"});
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).system_failures, 0);
  EXPECT_EQ(availability(node), Availability::kValidating);
  EXPECT_EQ(engine.node(node).availability_reason, "the prolog failed");
}

TEST_F(NodeServiceTest, AJobThatNoNodeCanPrepareIsHeldAtLast) {
  engine.add_node("n1", {.gpus = 8});
  const JobId job = engine.submit_gpus(1);
  for (int32_t i = 0; i < limits::kNodeFaultsMax; ++i) {
    engine.cycle();
    ASSERT_EQ(engine.state_of(job), JobState::kScheduled);
    engine.ended(job, {.cause = EndCause::kNodeFault, .detail = "the prolog failed"});
    resume(engine.job(job).node);
    engine.release_all();
    engine.advance(hours(1));
  }
  EXPECT_TRUE(engine.job(job).held);
  EXPECT_TRUE(engine.cycle().empty());
  engine.apply(HoldJob{.job = job, .held = false});
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(NodeServiceTest, AStartEndsTheRowOfFaultsThatHoldsAJob) {
  engine.add_node("n1", {.gpus = 8});
  const JobId job = engine.submit_gpus(1);
  for (int32_t i = 1; i <= limits::kNodeFaultsMax; ++i) {
    engine.cycle();
    ASSERT_EQ(engine.state_of(job), JobState::kScheduled);
    if (i == limits::kNodeFaultsMax) engine.started(job);
    engine.ended(job, {.cause = EndCause::kNodeFault, .detail = "the node's disk failed"});
    EXPECT_EQ(engine.job(job).node_faults, i == limits::kNodeFaultsMax ? 1 : i);
    resume(engine.job(job).node);
    engine.release_all();
    engine.advance(hours(1));
  }
  EXPECT_FALSE(engine.job(job).held);
}

TEST_F(NodeServiceTest, AnotherEndInBetweenEndsTheRowOfFaultsToo) {
  engine.add_node("n1", {.gpus = 8});
  const JobId job = engine.submit({.gpus = 1, .retry = {.exit_code_retries = 3}});
  const auto end_with = [&](const Outcome& outcome) {
    engine.cycle();
    ASSERT_EQ(engine.state_of(job), JobState::kScheduled);
    engine.ended(job, outcome);
    if (availability(engine.job(job).node) == Availability::kValidating) resume(engine.job(job).node);
    engine.release_all();
    engine.advance(hours(1));
  };
  const Outcome fault{.cause = EndCause::kNodeFault, .detail = "the prolog failed"};
  for (int32_t i = 0; i + 1 < limits::kNodeFaultsMax; ++i) end_with(fault);
  end_with(exited(1));
  EXPECT_EQ(engine.job(job).node_faults, 0);
  end_with(fault);
  EXPECT_EQ(engine.job(job).node_faults, 1);
  EXPECT_FALSE(engine.job(job).held);
}

class AutoDrainTest : public NodeServiceTest {
 protected:
  AutoDrainTest() {
    EngineConfig config;
    config.auto_drain_percent = limits::kAutoDrainPercentDefault;
    engine.apply(Configure{.config = config});
    other = engine.add_tenant("other");
  }
  TenantId other;
};

TEST_F(AutoDrainTest, ANodeThatFailsJobsOfTwoTenantsIsDrained) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  for (uint32_t i = 1; i < limits::kNodeFailuresMin; ++i) fail_one(kDefaultTenant, EndCause::kStartFailed);
  EXPECT_EQ(availability(node), Availability::kInService);
  fail_one(other, EndCause::kStartFailed);
  EXPECT_EQ(availability(node), Availability::kDraining);
  EXPECT_EQ(engine.node(node).availability_by, "scheduler");
  EXPECT_NE(engine.node(node).availability_reason.find("no such driver"), std::string::npos);
}

TEST_F(AutoDrainTest, OneTenantsFailuresAreNoEvidence) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  for (int i = 0; i < 30; ++i) fail_one(kDefaultTenant, EndCause::kStartFailed);
  EXPECT_EQ(availability(node), Availability::kInService);
  EXPECT_EQ(engine.node(node).failures.size(), limits::kNodeFailuresKept);
}

TEST_F(AutoDrainTest, ASuccessWipesTheSlate) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  for (int i = 0; i < 10; ++i) {
    fail_one(kDefaultTenant, EndCause::kStartFailed);
    fail_one(other, EndCause::kStartFailed);
    engine.finish(engine.run({.gpus = 1}));
  }
  EXPECT_EQ(availability(node), Availability::kInService);
}

TEST_F(AutoDrainTest, OldFailuresDoNotCount) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  for (int i = 0; i < 10; ++i) {
    fail_one(i % 2 == 0 ? kDefaultTenant : other, EndCause::kStartFailed);
    engine.advance(minutes(5));
  }
  EXPECT_EQ(availability(node), Availability::kInService);
}

TEST_F(AutoDrainTest, JobsThatFailByThemselvesDoNotAccuseTheNode) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  for (int i = 0; i < 10; ++i) fail_one(i % 2 == 0 ? kDefaultTenant : other, EndCause::kSignaled);
  EXPECT_EQ(availability(node), Availability::kInService);
}

TEST_F(AutoDrainTest, AtMostTheConfiguredShareOfNodesIsDrained) {
  for (int i = 0; i < 20; ++i) engine.add_node("n" + std::to_string(i), {.gpus = 1});
  for (int i = 0; i < 500; ++i) fail_one(i % 2 == 0 ? kDefaultTenant : other, EndCause::kShimLost);
  int drained = 0;
  for (const Node& node : engine.state().nodes) drained += node.availability == Availability::kDraining;
  EXPECT_EQ(drained, 1);
}

TEST_F(NodeServiceTest, WithoutTheSettingNoNodeIsDrained) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const TenantId other = engine.add_tenant("other");
  for (int i = 0; i < 20; ++i) fail_one(i % 2 == 0 ? kDefaultTenant : other, EndCause::kStartFailed);
  EXPECT_EQ(availability(node), Availability::kInService);
  EXPECT_TRUE(engine.node(node).failures.empty());
}

TEST_F(NodeServiceTest, AnImageRunsOnlyWhereContainersDo) {
  engine.add_node("plain", {.gpus = 1});
  const JobId job = engine.submit({.gpus = 1, .features = kFeatureContainer});
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.wait_code(job), WaitCode::kNoFeature);
  expect_rejected(engine.try_submit({.gpus = 1, .require_feasible = true, .features = kFeatureContainer}),
                  RejectionCode::kInfeasible);
  RegisterNode offer = registration_of("boxes", {.gpus = 1});
  offer.features = {"container", "container:podman"};
  const NodeId node{engine.apply(offer).first_id};
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(job).node, node);
}

TEST_F(NodeServiceTest, OperatorsLabelsComeGoAndStayOrdered) {
  const NodeId node = engine.add_node("n1", {});
  engine.apply(LabelNode{.node = node, .set = {{"zone", "b"}, {"rack", "r7"}}});
  engine.apply(LabelNode{.node = node, .set = {{"rack", "r8"}, {"class", "a"}}, .remove = {"zone"}});
  const std::vector<Label> expected = {{"class", "a"}, {"rack", "r8"}};
  EXPECT_EQ(engine.node(node).labels, expected);
}

TEST_F(NodeServiceTest, TooManyLabelsAreRefused) {
  const NodeId node = engine.add_node("n1", {});
  LabelNode full{.node = node};
  for (uint32_t i = 0; i < limits::kNodeLabelsMax; ++i) full.set.push_back({"l" + std::to_string(i), ""});
  EXPECT_FALSE(engine.apply(full).rejection.has_value());
  expect_rejected(engine.apply(LabelNode{.node = node, .set = {{"one-more", ""}}}),
                  RejectionCode::kLabelLimit);
}

TEST_F(NodeServiceTest, UnknownNodesAreNotFound) {
  expect_rejected(drain(NodeId{99}), RejectionCode::kNodeNotFound);
  expect_rejected(validated(NodeId{99}, true), RejectionCode::kNodeNotFound);
  expect_rejected(engine.apply(LabelNode{.node = NodeId{99}}), RejectionCode::kNodeNotFound);
}

// External nodes, which start nothing themselves, and jobs that they would not start.
class ExternalTest : public ::testing::Test {
 protected:
  void use_level(int64_t level) { engine.apply(Configure{.config = {.feature_level = level}}); }
  NodeId add_external(std::string_view name) {
    RegisterNode offer = registration_of(name, {.gpus = 2});
    offer.features = {"external"};
    return NodeId{engine.apply(offer).first_id};
  }
  JobId submit_external() { return engine.submit({.gpus = 1, .features = kFeatureExternal}); }
  void refuse(JobId job) {
    engine.ended(job,
                 {.cause = EndCause::kNotStarted, .detail = "taint gpu:NoSchedule", .keep_detail = true});
    engine.release_all();
  }
  std::string why(JobId job) { return describe(engine.planner().reason(engine.job(job).job_class)); }

  TestEngine engine;
};

TEST_F(ExternalTest, ExternalJobsRunOnExternalNodesAloneAndOthersNeverDo) {
  use_level(kFeatureLevel);
  const NodeId external = add_external("k1");
  const JobId ordinary = engine.submit_gpus(1);
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.wait_code(ordinary), WaitCode::kNoFeature);
  EXPECT_NE(why(ordinary).find("every registered node is external"), std::string::npos) << why(ordinary);
  const JobId job = submit_external();
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(job).node, external);
  const NodeId plain = engine.add_node("n1", {.gpus = 1});
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(ordinary).node, plain);
}

TEST_F(ExternalTest, WithoutAnExternalNodeTheJobWaitsAndSaysWhatFor) {
  use_level(kFeatureLevel);
  engine.add_node("n1", {.gpus = 2});
  const JobId job = submit_external();
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_NE(why(job).find("no external node is registered"), std::string::npos) << why(job);
  const Applied refused =
      engine.try_submit({.gpus = 1, .require_feasible = true, .features = kFeatureExternal});
  ASSERT_TRUE(refused.rejection.has_value());
  EXPECT_NE(refused.rejection->nearest.find("it is not external"), std::string::npos)
      << refused.rejection->nearest;
}

TEST_F(ExternalTest, AnAttemptThatWasNotStartedCostsNothingAndGoesToAnotherNode) {
  use_level(kFeatureLevel);
  add_external("k1");
  add_external("k2");
  const JobId job = submit_external();
  ASSERT_EQ(engine.cycle().size(), 1u);
  const NodeId first = engine.job(job).node;
  refuse(job);
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).system_failures, 0);
  EXPECT_EQ(engine.job(job).exit_failures, 0);
  EXPECT_TRUE(engine.node(first).failures.empty());
  EXPECT_EQ(engine.job(job).timeline().entries.back().step, JobStep::kRequeued);
  engine.advance(limits::kBackoffFirst);
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_NE(engine.job(job).node, first);
  // Another job may have the node that refused this one.
  const JobId other = submit_external();
  const JobId third = submit_external();
  engine.cycle();
  EXPECT_TRUE(engine.job(other).node == first || engine.job(third).node == first);
}

TEST_F(ExternalTest, TheNodeIsTriedAgainAfterHalfAMinuteThenAfterTwiceThat) {
  use_level(kFeatureLevel);
  const NodeId node = add_external("k1");
  const JobId job = submit_external();
  Duration span = limits::kAvoidFirst;
  for (int refusals = 1; refusals <= 6; ++refusals) {
    ASSERT_EQ(engine.cycle().size(), 1u) << refusals;
    EXPECT_EQ(engine.job(job).node, node);
    refuse(job);
    engine.advance(limits::kBackoffFirst);
    EXPECT_TRUE(engine.cycle().empty()) << refusals;
    EXPECT_NE(why(job).find("node k1 did not start it"), std::string::npos) << why(job);
    engine.advance(span - limits::kBackoffFirst - milliseconds(1));
    EXPECT_TRUE(engine.cycle().empty()) << refusals;
    engine.advance(milliseconds(1));
    span = std::min(span * 2, limits::kAvoidMax);
  }
  EXPECT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(job).system_failures, 0);
}

TEST_F(ExternalTest, WhatExpiresWhileTheJobRunsIsForgottenWhenItWaitsAgain) {
  use_level(kFeatureLevel);
  add_external("k1");
  const NodeId other = add_external("k2");
  const JobId job = submit_external();
  engine.cycle();
  const NodeId first = engine.job(job).node;
  refuse(job);
  engine.advance(limits::kBackoffFirst);
  engine.cycle();
  engine.started(job);
  engine.advance(minutes(2));
  const NodeId second = engine.job(job).node;
  EXPECT_NE(second, first);
  refuse(job);
  engine.advance(limits::kBackoffFirst);
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(job).node, first) << "the other is " << other.value;
}

TEST_F(ExternalTest, OneMemberThatIsNotStartedGivesTheGangBackAndOnlyItsNodeIsAvoided) {
  use_level(kFeatureLevel);
  for (const char* name : {"k1", "k2", "k3"}) add_external(name);
  const JobId job =
      engine.submit({.gpus = 1, .features = kFeatureExternal, .members = 2, .one_member_per_node = true});
  ASSERT_EQ(engine.cycle().size(), 1u);
  const std::vector<NodeId> before = engine.member_nodes(job);
  ASSERT_EQ(before.size(), 2u);
  const auto end = [&](uint32_t member, EndCause cause) {
    engine.apply(AttemptEnded{.job = job,
                              .attempt = engine.job(job).attempt_count,
                              .member = member,
                              .node = before[member],
                              .outcome = {.cause = cause, .detail = {}}});
  };
  end(1, EndCause::kNotStarted);
  end(0, EndCause::kStopped);
  engine.release_all();
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).system_failures, 0);
  engine.advance(limits::kBackoffFirst);
  ASSERT_EQ(engine.cycle().size(), 1u);
  const std::vector<NodeId> after = engine.member_nodes(job);
  EXPECT_EQ(std::count(after.begin(), after.end(), before[1]), 0);
  EXPECT_EQ(std::count(after.begin(), after.end(), before[0]), 1);
}

TEST_F(ExternalTest, NoCommandSaysWhatAJobAvoids) {
  use_level(kFeatureLevel);
  Want want{.gpus = 1};
  want.place = {PlaceRequest{.avoided = {AvoidedNode{.node = "k1", .until = Time{} + hours(1)}}}};
  EXPECT_FALSE(well_formed(Command(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request_of(want)}})));
  want.place.clear();
  EXPECT_TRUE(well_formed(Command(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request_of(want)}})));
}

TEST_F(ExternalTest, AChangedRequestKeepsWhatTheJobAvoids) {
  use_level(kFeatureLevel);
  add_external("k1");
  const JobId job = submit_external();
  engine.cycle();
  refuse(job);
  UpdateJob change{
      .job = job, .given = kJobParts, .parts = as_requested(engine.state().class_of(engine.job(job)).parts)};
  change.parts.front().memory_mb += 1;
  ASSERT_TRUE(well_formed(Command(change)));
  ASSERT_FALSE(engine.apply(change).rejection.has_value());
  engine.advance(limits::kAvoidFirst - milliseconds(1));
  EXPECT_TRUE(engine.cycle().empty());
  engine.advance(milliseconds(1));
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(ExternalTest, ARefusalLeavesTheJobItsDeadline) {
  use_level(kFeatureLevel);
  add_external("k1");
  const JobId job = submit_external();
  const Time deadline = engine.now() + hours(1);
  engine.apply(UpdateJob{.job = job, .given = kJobDeadline, .deadline = deadline});
  engine.cycle();
  engine.started(job);
  refuse(job);
  EXPECT_EQ(engine.job(job).deadline, deadline);
}

TEST_F(ExternalTest, BeforeFeatureLevelTwelveTheFeatureIsAWordAndNodesAreNotAvoided) {
  use_level(11);
  const NodeId node = add_external("k1");
  const JobId job = engine.submit_gpus(1);
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(job).node, node);
  refuse(job);
  engine.advance(limits::kBackoffFirst);
  ASSERT_EQ(engine.cycle().size(), 1u);
  engine.finish(job);
  use_level(12);
  engine.submit_gpus(1);
  EXPECT_TRUE(engine.cycle().empty());
  const JobId external = submit_external();
  ASSERT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.job(external).node, node);
}

}  // namespace
}  // namespace gpusched
