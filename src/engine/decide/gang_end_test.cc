// How the members of a gang are prepared, begin and end as one.
#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class GangEnd : public ::testing::Test {
 protected:
  GangEnd() {
    engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    for (const char* name : {"n1", "n2", "n3"}) engine.add_node(name, {.gpus = 1});
  }
  JobId place(const Want& want = {.gpus = 1, .members = 3}) {
    const JobId job = engine.submit(want);
    engine.cycle();
    EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
    return job;
  }
  JobId run(const Want& want = {.gpus = 1, .members = 3}) {
    const JobId job = place(want);
    for (uint32_t member = 0; member < 3; ++member) start(job, member);
    EXPECT_EQ(engine.state_of(job), JobState::kRunning);
    return job;
  }
  const Attempt& attempt(JobId job) {
    return *engine.state().find_attempt(job, engine.job(job).attempt_count);
  }
  Applied prepare(JobId job, uint32_t member) {
    return engine.apply(AttemptPrepared{.job = job,
                                        .attempt = engine.job(job).attempt_count,
                                        .member = member,
                                        .node = attempt(job).members[member].node});
  }
  Applied start(JobId job, uint32_t member) {
    return engine.apply(AttemptStarted{.job = job,
                                       .attempt = engine.job(job).attempt_count,
                                       .member = member,
                                       .node = attempt(job).members[member].node});
  }
  Applied end(JobId job, uint32_t member, const Outcome& outcome) {
    return engine.apply(AttemptEnded{.job = job,
                                     .attempt = engine.job(job).attempt_count,
                                     .member = member,
                                     .node = attempt(job).members[member].node,
                                     .outcome = outcome});
  }
  static Outcome of(EndCause cause, const char* detail = "") {
    return {.cause = cause, .detail = detail, .keep_detail = true};
  }
  TestEngine engine;
};

TEST_F(GangEnd, MayGoWhenTheLastMemberIsPrepared) {
  const JobId job = place();
  prepare(job, 0);
  prepare(job, 2);
  EXPECT_FALSE(attempt(job).may_go());
  const Digest before = engine.digest();
  prepare(job, 2);
  EXPECT_EQ(engine.digest(), before) << "said again";
  prepare(job, 1);
  EXPECT_TRUE(attempt(job).may_go());
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  start(job, 1);
  EXPECT_TRUE(attempt(job).may_go()) << "the others are told again after a scheduler's restart";
  end(job, 1, exited(0));
  EXPECT_TRUE(attempt(job).may_go()) << "also those that never heard it while the first was quick";
}

TEST_F(GangEnd, OnlyGangsArePrepared) {
  const JobId job = engine.submit({.gpus = 1});
  engine.cycle();
  expect_rejected(prepare(job, 0), RejectionCode::kAttemptNotFound);
}

TEST_F(GangEnd, RunsWhenAllMembersDo) {
  const JobId job = place();
  start(job, 0);
  start(job, 1);
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  start(job, 2);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
}

TEST_F(GangEnd, AMemberThatRefusesEndsTheOthersBeforeTheyBegin) {
  const JobId job = place();
  prepare(job, 0);
  prepare(job, 1);
  end(job, 2, of(EndCause::kStartFailed, "port 20001 is taken"));
  EXPECT_EQ(attempt(job).stop, StopReason::kGang);
  EXPECT_FALSE(attempt(job).may_go());
  end(job, 0, of(EndCause::kStopped));
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  end(job, 1, of(EndCause::kStopped));
  EXPECT_EQ(engine.state_of(job), JobState::kPending) << "tried again";
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kStartFailed);
  EXPECT_EQ(engine.job(job).extras->last_detail.view(), "member 2: port 20001 is taken");
}

TEST_F(GangEnd, MembersThatAreDoneLeaveTheOthersRunning) {
  const JobId job = run();
  end(job, 1, exited(0));
  end(job, 0, exited(0));
  EXPECT_EQ(attempt(job).stop, StopReason::kNone);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  end(job, 2, exited(0));
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST_F(GangEnd, TheFirstThatFailsIsTheJobsEnd) {
  const JobId job = run();
  end(job, 1, exited(0));
  end(job, 2, exited(3));
  EXPECT_EQ(attempt(job).stop, StopReason::kGang);
  end(job, 0, exited(0));
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
  EXPECT_EQ(engine.job(job).reason, JobReason::kExitCode);
  EXPECT_EQ(engine.job(job).exit_code, 3);
}

TEST_F(GangEnd, ALostMemberExplainsWhyItsPeersFailed) {
  const JobId job = run({.gpus = 1, .retry = {.system_retries = -1}, .members = 3});
  end(job, 0, exited(1));
  end(job, 1, of(EndCause::kShimLost, "its shim was killed"));
  end(job, 2, of(EndCause::kStopped));
  EXPECT_EQ(engine.job(job).reason, JobReason::kLost);
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kShimLost);
}

TEST_F(GangEnd, ACancelOfABrokenGangIsACancel) {
  const JobId job = run({.gpus = 1, .retry = {.exit_code_retries = 3}, .members = 3});
  end(job, 0, exited(1));
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(attempt(job).stop, StopReason::kCancel);
  end(job, 1, of(EndCause::kStopped));
  end(job, 2, of(EndCause::kStopped));
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST_F(GangEnd, ARebootedNodeEndsAllItsMembersAtOnce) {
  TestEngine two;
  two.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const NodeId id = two.add_node("n1", {.gpus = 2});
  const JobId job = two.submit({.gpus = 1, .members = 2});
  two.cycle();
  two.started(job);
  ASSERT_EQ(two.state_of(job), JobState::kRunning);
  two.apply(NodeLeaseLost{.node = id});
  two.apply(registration_of("n1", {.gpus = 2}, "boot-2"));
  EXPECT_EQ(two.state_of(job), JobState::kPending);
  EXPECT_EQ(two.job(job).last_cause, EndCause::kNodeLost);
  EXPECT_TRUE(two.state().attempts.empty());
}

TEST_F(GangEnd, ALostNodeGivesUpAGangThatAllowsOverlapOnce) {
  TestEngine two;
  two.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const NodeId node = two.add_node("n1", {.gpus = 2});
  const JobId job = two.submit({.gpus = 1, .retry = {.overlap_allowed = true}, .members = 2});
  two.cycle();
  two.started(job);
  two.apply(NodeLeaseLost{.node = node});
  two.advance(two.state().config.lost_after);
  EXPECT_EQ(two.state_of(job), JobState::kPending);
  EXPECT_TRUE(two.state().attempts.begin()->second.abandoned);
}

const Want kElastic{.gpus = 1, .retry = {.tolerates_node_loss = true}, .members = 2, .members_max = 3};

TEST_F(GangEnd, GoesOnWithoutALostMemberWhereThatIsAskedFor) {
  const JobId job = run(kElastic);
  end(job, 2, of(EndCause::kShimLost, "its shim was killed"));
  EXPECT_EQ(attempt(job).stop, StopReason::kNone);
  EXPECT_TRUE(attempt(job).members[2].lost_tolerated);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  end(job, 0, exited(0));
  end(job, 1, exited(0));
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST_F(GangEnd, WhatIsLeftDecidesHowAGangThatLostAMemberEnded) {
  const JobId job = run(kElastic);
  end(job, 1, of(EndCause::kNodeLost));
  end(job, 2, exited(3));
  EXPECT_EQ(attempt(job).stop, StopReason::kGang);
  end(job, 0, of(EndCause::kStopped));
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
  EXPECT_EQ(engine.job(job).exit_code, 3);
}

TEST_F(GangEnd, AMemberThatIsLostLastIsBorneToo) {
  const JobId job = run(kElastic);
  end(job, 0, exited(0));
  end(job, 1, exited(0));
  end(job, 2, of(EndCause::kNodeLost));
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST_F(GangEnd, DoesNotGoOnWithTooFewNorWithoutTheFirstNorBeforeAllHaveBegun) {
  const JobId all = run({.gpus = 1, .retry = {.tolerates_node_loss = true}, .members = 3});
  end(all, 2, of(EndCause::kNodeLost));
  EXPECT_EQ(attempt(all).stop, StopReason::kGang);
  end(all, 0, of(EndCause::kStopped));
  end(all, 1, of(EndCause::kStopped));
  EXPECT_EQ(engine.job(all).last_cause, EndCause::kNodeLost);
  engine.apply(CancelJob{.job = all});
  engine.release_all();

  const JobId first = run(kElastic);
  end(first, 0, of(EndCause::kNodeLost));
  EXPECT_EQ(attempt(first).stop, StopReason::kGang);
  end(first, 1, of(EndCause::kStopped));
  end(first, 2, of(EndCause::kStopped));
  engine.apply(CancelJob{.job = first});
  engine.release_all();

  const JobId early = place(kElastic);
  start(early, 0);
  start(early, 1);
  prepare(early, 2);
  end(early, 2, of(EndCause::kNodeLost));
  EXPECT_EQ(attempt(early).stop, StopReason::kGang);
}

TEST_F(GangEnd, ASecondLossThatLeavesTooFewEndsIt) {
  const JobId job = run(kElastic);
  end(job, 1, of(EndCause::kNodeLost));
  end(job, 2, of(EndCause::kNodeLost, "the second"));
  EXPECT_EQ(attempt(job).stop, StopReason::kGang);
  end(job, 0, of(EndCause::kStopped));
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kNodeLost);
  EXPECT_EQ(engine.job(job).extras->last_detail.view(), "member 2: the second");
}

TEST_F(GangEnd, OneThatGoesOnIsNotGivenUpWhenANodeFallsSilent) {
  TestEngine two;
  two.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const NodeId n1 = two.add_node("n1", {.gpus = 1});
  const NodeId n2 = two.add_node("n2", {.gpus = 2});
  const JobId job = two.submit({.gpus = 1,
                                .retry = {.overlap_allowed = true, .tolerates_node_loss = true},
                                .members = 1,
                                .members_max = 3});
  two.cycle();
  two.started(job);
  ASSERT_EQ(two.state_of(job), JobState::kRunning);
  const NodeId second = two.member_nodes(job).front() == n1 ? n2 : n1;
  two.apply(NodeLeaseLost{.node = second});
  two.advance(two.state().config.lost_after);
  EXPECT_FALSE(two.state().attempts.begin()->second.abandoned);
  EXPECT_EQ(two.state_of(job), JobState::kRunning);
  two.apply(ConfirmNodeDead{.node = second});
  EXPECT_EQ(two.state_of(job), JobState::kRunning);
  EXPECT_EQ(two.state().attempts.begin()->second.stop, StopReason::kNone);
}

}  // namespace
}  // namespace gpusched
