#include "engine/decide/black_hole.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::exited;
using testing::TestEngine;

constexpr int64_t kOne = int64_t{1} << rules::kTailBits;

TEST(ChanceOfAtLeast, IsTheBinomialOfEqualChances) {
  // 10 trials of one half: at least 8 hits in (45 + 10 + 1) of 1024 cases.
  const std::vector<int64_t> halves(10, int64_t{1} << (rules::kChanceBits - 1));
  EXPECT_EQ(rules::chance_of_at_least(halves, 8), kOne / 1024 * 56);
  EXPECT_EQ(rules::chance_of_at_least(halves, 0), kOne);
  EXPECT_EQ(rules::chance_of_at_least(halves, 11), 0);
}

TEST(ChanceOfAtLeast, IsWithinItsBoundOfSummingUpAllCases) {
  Prng prng(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> chances;
    for (int64_t i = prng.between(1, 10); i > 0; --i)
      chances.push_back(prng.between(0, int64_t{1} << rules::kChanceBits));
    const auto hits = static_cast<std::size_t>(prng.between(1, static_cast<int64_t>(chances.size())));
    double sum = 0;
    for (uint32_t cases = 0; cases < (1u << chances.size()); ++cases) {
      if (static_cast<std::size_t>(std::popcount(cases)) < hits) continue;
      double likely = 1;
      for (std::size_t i = 0; i < chances.size(); ++i) {
        const double chance = static_cast<double>(chances[i]) / (1 << rules::kChanceBits);
        likely *= ((cases >> i) & 1) != 0 ? chance : 1 - chance;
      }
      sum += likely;
    }
    const double got =
        static_cast<double>(rules::chance_of_at_least(chances, hits)) / static_cast<double>(kOne);
    EXPECT_NEAR(got, sum, 1e-9);
  }
}

class BlackHole : public ::testing::Test {
 protected:
  BlackHole() {
    engine_.apply(Configure{.config = {.auto_drain_percent = 5, .feature_level = kFeatureLevel}});
    for (const char* name : {"a", "b", "c"}) {
      engine_.apply(CreateTenant{.name = name});
      tenants_.push_back(engine_.state().find_tenant_named(name)->id);
    }
    bad_ = engine_.add_node("bad", {.gpus = 1});
    good_ = engine_.add_node("good", {.gpus = 1});
  }
  /// A job of the tenant runs on the node so long, and exits so.
  void run(std::size_t tenant, NodeId node, int32_t exit_code, Duration length = seconds(1)) {
    const JobId job = engine_.submit({.tenant = tenants_[tenant]});
    finish(job, node, exit_code, length);
  }
  void finish(JobId job, NodeId node, int32_t exit_code, Duration length = seconds(1)) {
    const PlanGroup group{
        .job = job,
        .attempt = engine_.job(job).attempt_count + 1,
        .members = {MemberPlacement{.node = node, .part = 0, .device_mask = 0, .generations = {}}},
        .preemptions = {}};
    engine_.apply(CommitPlan{.based_on = 0, .groups = {group}});
    engine_.started(job);
    engine_.advance(length);
    engine_.ended(job, exited(exit_code));
    engine_.settle();
  }
  bool drained() const { return engine_.node(bad_).availability == Availability::kDraining; }

  TestEngine engine_;
  std::vector<TenantId> tenants_;
  NodeId bad_, good_;
};

TEST_F(BlackHole, JobsOfTwoTenantsThatDieHereAndLiveElsewhereDrainTheNode) {
  for (int i = 0; i < 20; ++i) {
    run(0, good_, 0);
    run(1, good_, 0);
  }
  for (int i = 0; i < 8 && !drained(); ++i) run(static_cast<std::size_t>(i % 2), bad_, 1);
  ASSERT_TRUE(drained());
  EXPECT_EQ(engine_.node(bad_).availability_by, "scheduler");
  EXPECT_NE(engine_.node(bad_).availability_reason.find("of 2 tenants"), std::string::npos);
}

TEST_F(BlackHole, JobsThatDieEverywhereSayNothingOfANode) {
  for (int i = 0; i < 20; ++i) {
    run(0, good_, 1);
    run(1, good_, 1);
  }
  for (int i = 0; i < 20; ++i) run(static_cast<std::size_t>(i % 2), bad_, 1);
  EXPECT_FALSE(drained());
}

TEST_F(BlackHole, OneTenantsBrokenJobsDoNotCondemnItHoweverMany) {
  for (int i = 0; i < 20; ++i) {
    run(0, good_, 0);
    run(1, good_, 0);
  }
  for (int i = 0; i < 20; ++i) run(0, bad_, 1);
  run(1, bad_, 1);
  EXPECT_FALSE(drained());
}

TEST_F(BlackHole, FailuresAfterAWhileAreTheJobsOwn) {
  for (int i = 0; i < 20; ++i) {
    run(0, good_, 0);
    run(1, good_, 0);
  }
  for (int i = 0; i < 20; ++i) run(static_cast<std::size_t>(i % 2), bad_, 1, limits::kQuickEnd);
  EXPECT_FALSE(drained());
}

TEST_F(BlackHole, AJobThatDiesElsewhereTooIsExcused) {
  engine_.add_node("third", {.gpus = 1});
  for (int i = 0; i < 20; ++i) {
    run(0, good_, 0);
    run(1, good_, 0);
  }
  for (int i = 0; i < 12; ++i) {
    const JobId job = engine_.submit(
        {.tenant = tenants_[static_cast<std::size_t>(i % 2)], .retry = {.exit_code_retries = 1}});
    // It dies on the good node first, then on the bad one.
    finish(job, good_, 1);
    engine_.advance(minutes(10));
    finish(job, bad_, 1);
  }
  EXPECT_FALSE(drained());
  for (const NodeEnd& end : engine_.node(bad_).ends) EXPECT_TRUE(end.excused);
}

TEST_F(BlackHole, BeyondTheCapAnOperatorIsCalled) {
  const NodeId other = engine_.add_node("other", {.gpus = 1});
  engine_.apply(
      SetNodeAvailability{.node = other, .to = Availability::kDraining, .by = "scheduler", .reason = "r"});
  for (int i = 0; i < 20; ++i) {
    run(0, good_, 0);
    run(1, good_, 0);
  }
  for (int i = 0; i < 8; ++i) run(static_cast<std::size_t>(i % 2), bad_, 1);
  EXPECT_FALSE(drained());
  EXPECT_NE(engine_.node(bad_).suspect_detail.find("of 2 tenants"), std::string::npos);
  // An operator says that it is well.
  engine_.apply(SetNodeAvailability{.node = bad_, .to = Availability::kInService, .by = "ada", .reason = ""});
  EXPECT_EQ(engine_.node(bad_).suspect_detail, "");
  EXPECT_TRUE(engine_.node(bad_).ends.empty());
}

TEST_F(BlackHole, TenantsCountsAreTheSumOfWhatNodesRemember) {
  for (int i = 0; i < 100; ++i)
    run(static_cast<std::size_t>(i % 3), i % 4 == 0 ? bad_ : good_, i % 5 == 0 ? 1 : 0, seconds(i));
  for (const TenantId tenant : tenants_) {
    int64_t ends = 0;
    int64_t quick = 0;
    for (const Node& node : engine_.state().nodes) {
      EXPECT_LE(node.ends.size(), limits::kNodeEndsKept);
      for (const NodeEnd& end : node.ends) {
        ends += end.tenant == tenant ? 1 : 0;
        quick += end.tenant == tenant && end.quick ? 1 : 0;
      }
    }
    EXPECT_EQ(engine_.state().find_tenant(tenant)->recent_ends, ends);
    EXPECT_EQ(engine_.state().find_tenant(tenant)->recent_quick_ends, quick);
  }
}

TEST(BlackHoleBefore, FeatureLevelFiveNodesRememberNothing) {
  TestEngine engine;
  engine.apply(Configure{.config = {.auto_drain_percent = 5, .feature_level = 4}});
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.ended(job, exited(1));
  EXPECT_TRUE(engine.node(node).ends.empty());
}

}  // namespace
}  // namespace gpusched
