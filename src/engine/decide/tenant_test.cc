#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(CreateTenant, KeepsWhatWasGiven) {
  TestEngine engine;
  Limits limits;
  limits.set(Resource::kGpus, 0);
  limits.set(Resource::kCpu, 4000);
  const Applied applied = engine.apply(CreateTenant{.name = "ml",
                                                    .email = "a@b.example",
                                                    .organization = "lab",
                                                    .limits = limits,
                                                    .priority_tier = 0,
                                                    .weight_milli = 0,
                                                    .allow_preemption = true});
  const Tenant& tenant = engine.tenant(TenantId{applied.first_id});
  EXPECT_EQ(tenant.name, "ml");
  EXPECT_EQ(tenant.limits.get(Resource::kGpus), 0);
  EXPECT_EQ(tenant.limits.get(Resource::kCpu), 4000);
  EXPECT_EQ(tenant.limits.get(Resource::kMemory), Limits::kUnlimited);
  EXPECT_EQ(tenant.priority_tier, 0);
  EXPECT_EQ(tenant.weight_milli, 0);
  EXPECT_TRUE(tenant.allow_preemption);
  EXPECT_EQ(tenant.created_at, engine.now());
  EXPECT_EQ(engine.state().find_tenant_named("ml"), &tenant);
}

TEST(CreateTenant, ANameIsTakenOnce) {
  TestEngine engine;
  engine.add_tenant("t");
  expect_rejected(engine.apply(CreateTenant{.name = "t"}), RejectionCode::kTenantExists);
  expect_rejected(engine.apply(CreateTenant{.name = "default"}), RejectionCode::kTenantExists);
}

TEST(CreateTenant, ANameIsTakenInWhateverCase) {
  TestEngine engine;
  engine.add_tenant("lab");
  const TenantId older = engine.add_tenant("LAB");  // By the rules until feature level 10.
  EXPECT_TRUE(older.valid());
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  expect_rejected(engine.apply(CreateTenant{.name = "Lab"}), RejectionCode::kTenantExists);
  const TenantId other = engine.add_tenant("other");
  expect_rejected(engine.apply(UpdateTenant{.tenant = other, .given = kTenantName, .name = "lAb"}),
                  RejectionCode::kTenantExists);
  EXPECT_FALSE(engine.apply(UpdateTenant{.tenant = other, .given = kTenantName, .name = "Other"}).rejection);
  EXPECT_FALSE(engine.apply(UpdateTenant{.tenant = older, .given = kTenantEmail, .email = "x"}).rejection);
}

TEST(CreateTenant, ANameIsTakenByAllThatHaveItsKey) {
  TestEngine engine;
  const CreateTenant grave{.name = "\u00dcBER", .name_key = "\u00fcber"};
  engine.apply(Configure{.config = {.feature_level = 10}});
  ASSERT_FALSE(engine.apply(grave).rejection);  // By the rules until feature level 11, which keep no key.
  EXPECT_TRUE(engine.state().find_tenant_named(grave.name)->name_key.empty());
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const Applied made = engine.apply(CreateTenant{.name = "\u00c4pfel", .name_key = "\u00e4pfel"});
  ASSERT_FALSE(made.rejection);
  expect_rejected(engine.apply(CreateTenant{.name = "\u00e4PFEL", .name_key = "\u00e4pfel"}),
                  RejectionCode::kTenantExists);
  // A name without a key of its own is the same as one whose key folds to it.
  ASSERT_FALSE(engine.apply(CreateTenant{.name = "\u00e4b"}).rejection);
  expect_rejected(engine.apply(CreateTenant{.name = "\u00c4B", .name_key = "\u00e4b"}),
                  RejectionCode::kTenantExists);
  const TenantId other = engine.add_tenant("other");
  const UpdateTenant rename{
      .tenant = other, .given = kTenantName, .name = "\u00c4PFEL", .name_key = "\u00e4pfel"};
  expect_rejected(engine.apply(rename), RejectionCode::kTenantExists);
  // A name that is given up takes its key along.
  engine.apply(UpdateTenant{.tenant = TenantId{made.first_id}, .given = kTenantName, .name = "pears"});
  EXPECT_TRUE(engine.state().tenant_at(TenantId{made.first_id}).name_key.empty());
  EXPECT_FALSE(engine.apply(rename).rejection);
}

TEST(CreateTenant, ANameMayRepeatWhereTheCommandSaysSo) {
  TestEngine engine;
  const TenantId first = engine.add_tenant("t");
  const Applied applied = engine.apply(CreateTenant{.name = "t", .name_may_repeat = true});
  ASSERT_FALSE(applied.rejection.has_value());
  const TenantId second{applied.first_id};
  EXPECT_NE(first, second);
  EXPECT_EQ(engine.state().find_tenant_named("t")->id, first);
  const auto named = engine.state().tenants_named("t");
  EXPECT_EQ(std::vector<TenantId>(named.begin(), named.end()), (std::vector<TenantId>{first, second}));
  // Each keeps the name in an update, and either may go.
  EXPECT_FALSE(engine.apply(UpdateTenant{.tenant = second, .given = kTenantName, .name = "t"}).rejection);
  engine.apply(DeleteTenant{.tenant = first});
  EXPECT_EQ(engine.state().find_tenant_named("t")->id, second);
  expect_rejected(engine.apply(CreateTenant{.name = "t"}), RejectionCode::kTenantExists);
}

TEST(CreateTenant, ATenantOfAnonymousCallersTakesNoNameOfAnother) {
  TestEngine engine;
  engine.add_tenant("closed");
  engine.apply(CreateTenant{.name = "open", .anonymous = true});
  expect_rejected(engine.apply(CreateTenant{.name = "closed", .anonymous = true, .name_may_repeat = true}),
                  RejectionCode::kTenantExists);
  EXPECT_FALSE(
      engine.apply(CreateTenant{.name = "open", .anonymous = true, .name_may_repeat = true}).rejection);
}

TEST(CreateTenant, ARepeatedKeyIsTheSameTenantWhetherItsNameMayRepeatOrNot) {
  TestEngine engine;
  const Applied first = engine.apply(CreateTenant{.name = "t", .request_key = "k"});
  const Applied again = engine.apply(CreateTenant{.name = "t", .request_key = "k", .name_may_repeat = true});
  EXPECT_TRUE(again.repeated);
  EXPECT_EQ(again.first_id, first.first_id);
}

TEST(CreateTenant, AnUnknownOrDeletedParentIsInvalid) {
  TestEngine engine;
  expect_rejected(engine.apply(CreateTenant{.name = "t", .parent = TenantId{404}}),
                  RejectionCode::kTenantParentInvalid);
  const TenantId parent = engine.add_tenant("parent");
  engine.apply(DeleteTenant{.tenant = parent});
  expect_rejected(engine.apply(CreateTenant{.name = "t", .parent = parent}),
                  RejectionCode::kTenantParentInvalid);
}

TEST(CreateTenant, NestingEndsAtItsLimit) {
  TestEngine engine;
  TenantId parent;
  for (uint32_t depth = 0; depth < limits::kTenantDepthMax; ++depth) {
    parent = engine.add_tenant("t" + std::to_string(depth), parent);
  }
  expect_rejected(engine.apply(CreateTenant{.name = "deeper", .parent = parent}),
                  RejectionCode::kTenantParentInvalid);
}

TEST(UpdateTenant, ChangesOnlyWhatIsGiven) {
  TestEngine engine;
  const TenantId id = engine.add_tenant("t");
  UpdateTenant change{
      .tenant = id, .given = kTenantEmail | kTenantMaxGpus, .name = "other", .email = "x@y.example"};
  change.limits.set(Resource::kGpus, 3);
  change.limits.set(Resource::kCpu, 1);
  engine.advance(seconds(1));
  engine.apply(change);
  const Tenant& tenant = engine.tenant(id);
  EXPECT_EQ(tenant.name, "t");
  EXPECT_EQ(tenant.email, "x@y.example");
  EXPECT_EQ(tenant.limits.get(Resource::kGpus), 3);
  EXPECT_EQ(tenant.limits.get(Resource::kCpu), Limits::kUnlimited);
  EXPECT_EQ(tenant.priority_tier, 500);
  EXPECT_EQ(tenant.updated_at, engine.now());
}

TEST(UpdateTenant, EveryFieldCanBeGivenAndMayBeZero) {
  TestEngine engine;
  const TenantId id = engine.add_tenant("t");
  engine.apply(UpdateTenant{.tenant = id, .given = (1u << 12) - 1, .name = "u"});
  const Tenant& tenant = engine.tenant(id);
  EXPECT_EQ(tenant.name, "u");
  EXPECT_EQ(tenant.priority_tier, 0);
  EXPECT_EQ(tenant.weight_milli, 0);
}

TEST(UpdateTenant, EachLimitAndEachGuaranteeTakesItsOwnNumber) {
  TestEngine engine;
  const TenantId id = engine.add_tenant("t");
  const ResourceLimits limits{.gpus = 11, .gpu_memory_mb = 12, .cpu_milli = 13, .memory_mb = 14, .jobs = 15};
  const Amount guarantee{.gpus = 1, .gpu_memory_mb = 2, .cpu_milli = 3, .memory_mb = 4, .jobs = 5};
  const uint32_t fields[][2] = {{kTenantMaxGpus, kTenantGuaranteeGpus},
                                {kTenantMaxGpuMemory, kTenantGuaranteeGpuMemory},
                                {kTenantMaxCpu, kTenantGuaranteeCpu},
                                {kTenantMaxMemory, kTenantGuaranteeMemory},
                                {kTenantMaxJobs, kTenantGuaranteeJobs}};
  int64_t Amount::* const members[] = {&Amount::gpus, &Amount::gpu_memory_mb, &Amount::cpu_milli,
                                       &Amount::memory_mb, &Amount::jobs};
  std::optional<int64_t> ResourceLimits::* const limit_members[] = {
      &ResourceLimits::gpus, &ResourceLimits::gpu_memory_mb, &ResourceLimits::cpu_milli,
      &ResourceLimits::memory_mb, &ResourceLimits::jobs};
  ResourceLimits expected_limits;
  Amount expected_guarantee;
  for (std::size_t i = 0; i < std::size(members); ++i) {
    UpdateTenant change{.tenant = id, .given = fields[i][0] | fields[i][1], .guarantee = guarantee};
    change.limits.resources = limits;
    ASSERT_FALSE(engine.apply(change).rejection.has_value());
    expected_limits.*limit_members[i] = limits.*limit_members[i];
    expected_guarantee.*members[i] = guarantee.*members[i];
    EXPECT_EQ(engine.tenant(id).limits.resources, expected_limits);
    EXPECT_EQ(engine.tenant(id).guarantee, expected_guarantee);
  }
}

TEST(UpdateTenant, ARenameFreesTheOldNameAndTakesTheNew) {
  TestEngine engine;
  const TenantId id = engine.add_tenant("old");
  engine.apply(UpdateTenant{.tenant = id, .given = kTenantName, .name = "new"});
  EXPECT_EQ(engine.state().find_tenant_named("old"), nullptr);
  EXPECT_EQ(engine.state().find_tenant_named("new")->id, id);
  const TenantId second = engine.add_tenant("old");
  EXPECT_EQ(engine.state().find_tenant_named("old")->id, second);
  expect_rejected(engine.apply(UpdateTenant{.tenant = second, .given = kTenantName, .name = "new"}),
                  RejectionCode::kTenantExists);
}

TEST(UpdateTenant, ItsOwnNameIsNoConflict) {
  TestEngine engine;
  const TenantId id = engine.add_tenant("t");
  EXPECT_FALSE(
      engine.apply(UpdateTenant{.tenant = id, .given = kTenantName, .name = "t"}).rejection.has_value());
}

TEST(UpdateTenant, AnUnknownTenantIsNotFound) {
  TestEngine engine;
  expect_rejected(engine.apply(UpdateTenant{.tenant = TenantId{404}}), RejectionCode::kTenantNotFound);
}

TEST(UpdateTenant, ANewTierHoldsForJobsSubmittedAfterIt) {
  TestEngine engine;
  const TenantId id = engine.add_tenant("t");
  const JobId before = engine.submit({.tenant = id});
  const int64_t key = engine.job(before).order_key;
  engine.apply(UpdateTenant{.tenant = id, .given = kTenantPriorityTier, .priority_tier = 900});
  EXPECT_EQ(engine.job(before).order_key, key);
  EXPECT_GT(engine.job(engine.submit({.tenant = id})).order_key, key);
}

TEST(DeleteTenant, TheDefaultTenantStays) {
  TestEngine engine;
  expect_rejected(engine.apply(DeleteTenant{.tenant = kDefaultTenant}), RejectionCode::kTenantBusy);
}

TEST(DeleteTenant, UnfinishedJobsAndChildrenHoldIt) {
  TestEngine engine;
  const TenantId parent = engine.add_tenant("parent");
  const TenantId child = engine.add_tenant("child", parent);
  const JobId job = engine.submit({.tenant = child});
  expect_rejected(engine.apply(DeleteTenant{.tenant = parent}), RejectionCode::kTenantBusy);
  expect_rejected(engine.apply(DeleteTenant{.tenant = child}), RejectionCode::kTenantBusy);
  engine.apply(CancelJob{.job = job});
  EXPECT_FALSE(engine.apply(DeleteTenant{.tenant = child}).rejection.has_value());
  EXPECT_FALSE(engine.apply(DeleteTenant{.tenant = parent}).rejection.has_value());
  expect_rejected(engine.apply(DeleteTenant{.tenant = parent}), RejectionCode::kTenantNotFound);
}

TEST(DeleteTenant, ItsNameIsFreeForAnother) {
  TestEngine engine;
  const TenantId first = engine.add_tenant("t");
  engine.apply(DeleteTenant{.tenant = first});
  EXPECT_EQ(engine.state().find_tenant_named("t"), nullptr);
  const TenantId second = engine.add_tenant("t");
  EXPECT_EQ(engine.state().find_tenant_named("t")->id, second);
}

TEST(Configure, TheSameConfigurationChangesNothing) {
  TestEngine engine;
  const Digest before = engine.digest();
  engine.apply(Configure{.config = EngineConfig{}});
  EXPECT_EQ(engine.digest(), before);
}

TEST(Configure, ANewConfigurationIsKept) {
  TestEngine engine;
  EngineConfig config;
  config.aging_per_hour = 0;
  engine.apply(Configure{.config = config});
  EXPECT_EQ(engine.state().config, config);
}

TEST(Configure, AChangedLossLimitHoldsForNodesThatAreSilentAlready) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {});
  engine.apply(NodeLeaseLost{.node = node});
  EngineConfig config;
  config.lost_after = minutes(1);
  engine.apply(Configure{.config = config});
  engine.advance(minutes(1));
  EXPECT_EQ(engine.node(node).state, NodeState::kLost);
  EXPECT_TRUE(engine.state().timers.empty());
}

TEST(Configure, ATimerOfAnOlderLossLimitDoesNotOutliveTheSilence) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {});
  engine.apply(NodeLeaseLost{.node = node});
  EngineConfig config;
  config.lost_after = minutes(20);
  engine.apply(Configure{.config = config});
  engine.apply(NodeLeaseBack{.node = node});
  EXPECT_TRUE(engine.state().timers.empty());
  engine.advance(minutes(4));
  engine.apply(NodeLeaseLost{.node = node});
  engine.advance(minutes(19));
  EXPECT_EQ(engine.node(node).state, NodeState::kUnreachable);
}

TEST(Guarantees, OfADeletedChildAreFreeForAnother) {
  TestEngine engine;
  const auto create = [&](const char* name, TenantId parent) {
    CreateTenant command{.name = name, .parent = parent};
    command.guarantee.gpus = 4;
    return engine.apply(command);
  };
  const TenantId parent{create("parent", {}).first_id};
  const TenantId first{create("first", parent).first_id};
  expect_rejected(create("second", parent), RejectionCode::kGuaranteeAboveParent);
  engine.apply(DeleteTenant{.tenant = first});
  EXPECT_FALSE(create("second", parent).rejection.has_value());
}

/// Three generations, the first with a limit of two waiting jobs.
class Generations : public ::testing::Test {
 protected:
  explicit Generations()
      : child_(engine_.add_tenant("child", root_)), grandchild_(engine_.add_tenant("grandchild", child_)) {}
  void limit(std::optional<int64_t> Limits::* field) {
    UpdateTenant change{.tenant = root_, .given = kTenantWaiting | kTenantSoftWaiting};
    change.limits.*field = 2;
    engine_.apply(change);
  }
  Applied submit() { return engine_.try_submit({.tenant = grandchild_}, {}, "somebody"); }

  TestEngine engine_;
  TenantId root_ = engine_.add_tenant("root");
  TenantId child_;
  TenantId grandchild_;
};

TEST_F(Generations, WhatWaitsCountsForEveryTenantAbove) {
  submit();
  EXPECT_EQ(engine_.state().waiting_count(engine_.tenant(grandchild_)), 1);
  EXPECT_EQ(engine_.state().waiting_count(engine_.tenant(child_)), 1);
  EXPECT_EQ(engine_.state().waiting_count(engine_.tenant(root_)), 1);
}

TEST_F(Generations, AWaitingLimitHoldsForGrandchildren) {
  limit(&Limits::waiting_max);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(submit().rejection.has_value());
  const Applied refused = submit();
  expect_rejected(refused, RejectionCode::kTenantQueueFull);
  EXPECT_EQ(refused.rejection->tenant, root_);
}

TEST_F(Generations, ASoftWaitingLimitHoldsForGrandchildren) {
  limit(&Limits::soft_waiting_max);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(submit().rejection.has_value()) << "beyond it one by one";
  const Applied refused = submit();
  expect_rejected(refused, RejectionCode::kTenantThrottled);
  EXPECT_EQ(refused.rejection->tenant, root_);
}

}  // namespace
}  // namespace gpusched
