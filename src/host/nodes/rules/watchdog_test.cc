#include "host/nodes/rules/watchdog.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace gpusched {
namespace {

const WatchPolicy kPolicy{.idle_after = minutes(30),
                          .idle_action = WatchAction::kRequeue,
                          .hung_after = minutes(60),
                          .hung_action = WatchAction::kCancel};

TEST(Judge, OneMemberThatWorksSpeaksForAll) {
  std::vector<MemberActivity> members = {{.idle = minutes(40)}, {.idle = minutes(31)}};
  const WatchFinding idle = judge(kPolicy, members);
  EXPECT_EQ(idle.kind, WatchdogFinding::kIdle);
  EXPECT_EQ(idle.age, minutes(31));
  EXPECT_EQ(idle.action, WatchAction::kRequeue);
  EXPECT_NE(idle.detail.find("31 min"), std::string::npos);
  members[1].idle = minutes(29);
  EXPECT_EQ(judge(kPolicy, members).kind, WatchdogFinding::kNone);
}

TEST(Judge, HungIsBusyAndQuietAtOnce) {
  std::vector<MemberActivity> members = {{.busy = hours(3), .quiet = minutes(61)},
                                         {.busy = minutes(62), .quiet = hours(2)}};
  EXPECT_EQ(judge(kPolicy, members).kind, WatchdogFinding::kHung);
  EXPECT_EQ(judge(kPolicy, members).age, minutes(61));
  members[0].quiet = minutes(5);  // It printed something.
  EXPECT_EQ(judge(kPolicy, members).kind, WatchdogFinding::kNone);
  members[0] = {.busy = minutes(5), .quiet = hours(3)};  // Its GPU rested.
  EXPECT_EQ(judge(kPolicy, members).kind, WatchdogFinding::kNone);
}

TEST(Judge, MoreMemoryThanTheShareIsToldAfterAMoment) {
  std::array<MemberActivity, 1> members = {MemberActivity{.over_mb = 500, .over = seconds(5)}};
  EXPECT_EQ(judge(kPolicy, members).kind, WatchdogFinding::kNone);
  members[0].over = seconds(30);
  EXPECT_EQ(judge(kPolicy, members).kind, WatchdogFinding::kOverShare);
  EXPECT_EQ(judge(kPolicy, members).action, WatchAction::kWarn);
}

TEST(Judge, NothingIsLookedAtThatHasNoTime) {
  const std::array<MemberActivity, 1> members = {
      MemberActivity{.idle = hours(900), .busy = hours(900), .quiet = hours(900)}};
  EXPECT_EQ(judge(WatchPolicy{}, members).kind, WatchdogFinding::kNone);
  EXPECT_EQ(judge(kPolicy, {}).kind, WatchdogFinding::kNone);
}

TEST(PolicyOf, AJobMayAlwaysAskToBeTreatedHarder) {
  const WatchLimits limits{.usual = kPolicy, .after_max = {}, .job_may_soften = false};
  v1::JobSpec spec;
  EXPECT_EQ(policy_of(limits, spec), kPolicy);
  spec.set_idle_after_ms(minutes(5).ms());
  spec.set_idle_action("cancel");
  EXPECT_EQ(policy_of(limits, spec).idle_after, minutes(5));
  EXPECT_EQ(policy_of(limits, spec).idle_action, WatchAction::kCancel);
}

TEST(PolicyOf, MilderOnlyAsFarAsTheOperatorLets) {
  WatchLimits limits{.usual = kPolicy, .after_max = {}, .job_may_soften = false};
  v1::JobSpec spec;
  spec.set_hung_after_ms(hours(12).ms());
  spec.set_hung_action("warn");
  EXPECT_EQ(policy_of(limits, spec).hung_after, minutes(60));
  EXPECT_EQ(policy_of(limits, spec).hung_action, WatchAction::kCancel);
  limits.after_max = hours(4);
  limits.job_may_soften = true;
  EXPECT_EQ(policy_of(limits, spec).hung_after, hours(4));
  EXPECT_EQ(policy_of(limits, spec).hung_action, WatchAction::kWarn);
}

TEST(PolicyOf, WhereNobodyLooksAJobMayAskToBeLookedAt) {
  v1::JobSpec spec;
  spec.set_idle_after_ms(minutes(5).ms());
  EXPECT_EQ(policy_of(WatchLimits{}, spec).idle_after, minutes(5));
}

TEST(Judge, ALeaseIsEndingInItsLastMinutes) {
  const std::array<MemberActivity, 1> members = {MemberActivity{.idle = minutes(40)}};
  WatchPolicy lease = kPolicy;
  lease.is_lease = true;
  const auto seen = [&](const WatchPolicy& policy, const RunTime& run_time) {
    return judge(policy, members, run_time).kind;
  };
  EXPECT_EQ(seen(lease, {.limit = hours(1), .past = minutes(54)}), WatchdogFinding::kIdle);
  EXPECT_EQ(seen(lease, {.limit = hours(1), .past = minutes(55)}), WatchdogFinding::kEnding);
  EXPECT_EQ(seen(lease, {.limit = hours(1), .past = minutes(90)}), WatchdogFinding::kEnding);
  EXPECT_EQ(seen(lease, {.limit = seconds(60), .past = seconds(44)}), WatchdogFinding::kIdle);
  EXPECT_EQ(seen(lease, {.limit = seconds(60), .past = seconds(45)}), WatchdogFinding::kEnding);
  EXPECT_EQ(seen(lease, {.limit = {}, .past = hours(1)}), WatchdogFinding::kIdle);
  EXPECT_EQ(seen(kPolicy, {.limit = hours(1), .past = minutes(59)}), WatchdogFinding::kIdle);
  EXPECT_EQ(judge(lease, members, {.limit = hours(1), .past = minutes(56)}).action, WatchAction::kWarn);
  v1::JobSpec spec;
  EXPECT_FALSE(policy_of({}, spec).is_lease);
  (*spec.mutable_labels())["gpusched.lease"] = "1";
  EXPECT_TRUE(policy_of({}, spec).is_lease);
}

}  // namespace
}  // namespace gpusched
