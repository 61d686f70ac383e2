#include "consensus/replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "consensus/testing/manual_group.h"

namespace gpusched::consensus {
namespace {

using Strings = std::vector<std::string>;

MemberChange add_learner(uint64_t id) {
  return {.kind = ChangeKind::kAddLearner, .id = id, .store = ManualGroup::store_id(id)};
}
MemberChange add_voter(uint64_t id) {
  return {.kind = ChangeKind::kAddVoter, .id = id, .store = ManualGroup::store_id(id)};
}
MemberChange removed(uint64_t id) { return {.kind = ChangeKind::kRemove, .id = id}; }

void change(ManualGroup& group, uint64_t leader, const std::vector<MemberChange>& changes) {
  const Result<Proposed> proposed = group.at(leader).propose_members(changes);
  ASSERT_TRUE(proposed.ok()) << proposed.error().message;
  ASSERT_TRUE(group.run(leader).ok());
  group.settle();
  group.tick(leader);
  group.settle();
}

TEST(Replica, AppliesWhatAMajorityHas) {
  ManualGroup group(3);
  group.elect(1);
  group.isolate(3);
  group.commit(1, "one");
  EXPECT_EQ(group.applied(1), Strings{"one"});
  EXPECT_EQ(group.applied(2), Strings{"one"});
  group.isolate(2);
  group.commit(1, "two");
  EXPECT_EQ(group.applied(1), Strings{"one"});
}

TEST(Replica, AnswersOnlyAfterItsOwnSync) {
  ManualGroup group(3);
  group.elect(1);
  ASSERT_TRUE(group.at(1).propose("one").ok());
  ASSERT_TRUE(group.run(1).ok());
  const std::vector<PeerFrame> appends = group.take();
  ASSERT_EQ(appends.size(), 2u);
  group.disk(2).fail_after(1, false);  // The entry is written, and its sync fails.
  Replica& follower = group.at(2);
  ASSERT_TRUE(follower.receive(appends.front()).ok());
  EXPECT_FALSE(follower.run().ok());
  EXPECT_TRUE(group.take().empty());
}

TEST(Replica, ALeadersEntriesLeaveBeforeItsOwnSync) {
  ManualGroup group(3);
  group.elect(1);
  ASSERT_TRUE(group.at(1).propose("one").ok());
  group.disk(1).fail_after(1, false);
  EXPECT_FALSE(group.run(1).ok());
  EXPECT_EQ(group.take().size(), 2u);
}

TEST(Replica, ADeposedLeadersEntriesGiveWay) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "kept");
  group.isolate(1);
  ASSERT_TRUE(group.at(1).propose("lost").ok());
  ASSERT_TRUE(group.run(1).ok());
  (void)group.take();
  EXPECT_EQ(group.at(1).log().durable_index(), group.at(1).state().last_index);
  group.elect(2);
  group.commit(2, "new");
  group.join(1);
  group.tick(2);
  group.settle();
  group.tick(2);
  group.settle();
  EXPECT_EQ(group.applied(1), (Strings{"kept", "new"}));
}

TEST(Replica, GoesOnFromItsDiskAndIsHandedEachEntryOnce) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  group.commit(1, "two");
  ASSERT_TRUE(group.at(2).compact("state").ok());
  group.stop(2);
  ASSERT_TRUE(group.start(2).ok());
  group.commit(1, "three");
  EXPECT_EQ(group.applied(2), Strings{"three"});
}

TEST(Replica, AStateAheadOfTheLogIsNoSnapshotOfIt) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  group.commit(1, "two");
  const uint64_t held = group.at(2).state().applied;
  // Its commit index was not durable yet, and its owner's state was.
  group.stop(2);
  group.disk(2).put_hard_state({.term = group.at(1).state().hard_state.term, .vote = 1, .commit = 1});
  ASSERT_TRUE(group.start(2, held).ok());
  ASSERT_TRUE(group.run(2).ok());
  ASSERT_LT(group.at(2).state().applied, held);
  ASSERT_TRUE(group.at(2).compact("state with all entries").ok());
  EXPECT_EQ(group.at(2).log().snapshot_index(), 0u);
  group.commit(1, "three");
  EXPECT_EQ(group.applied(2), Strings{"three"});
  ASSERT_TRUE(group.at(2).compact("state with all entries").ok());
  EXPECT_EQ(group.at(2).log().snapshot_index(), group.at(2).state().applied);
}

TEST(Replica, ASnapshotUpToAnEarlierEntryKeepsTheLaterOnesForWhoIsAway) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  const uint64_t one = group.at(1).state().applied;
  group.isolate(3);
  group.commit(1, "two");
  group.commit(1, "three");
  ASSERT_TRUE(group.at(1).compact("state", one).ok());
  EXPECT_EQ(group.at(1).log().snapshot_index(), one);
  group.join(3);
  for (int i = 0; i < 4; ++i) {
    group.tick(1);
    group.settle();
  }
  EXPECT_EQ(group.installed(3), 0u);
  EXPECT_EQ(group.applied(3), (Strings{"one", "two", "three"}));
}

TEST(Replica, NoSnapshotIsTakenOfATimeBeforeTheMembersChanged) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  const uint64_t one = group.at(1).state().applied;
  group.add(4);
  change(group, 1, {add_learner(4)});
  ASSERT_TRUE(group.at(1).compact("state", one).ok());
  EXPECT_EQ(group.at(1).log().snapshot_index(), 0u);
}

TEST(Replica, TakesASnapshotWhenTheLogIsGone) {
  ManualGroup group(3);
  group.elect(1);
  group.isolate(3);
  group.commit(1, "one");
  group.commit(1, "two");
  ASSERT_TRUE(group.at(1).compact("state").ok());
  group.join(3);
  for (int i = 0; i < 4; ++i) {
    group.tick(1);
    group.settle();
  }
  EXPECT_EQ(group.installed(3), 1u);
  group.commit(1, "three");
  EXPECT_EQ(group.applied(3), Strings{"three"});
}

// Reads.

TEST(Replica, AReadIsServedAfterAMajorityAnswered) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  const Result<uint64_t> read = group.at(1).read();
  ASSERT_TRUE(read.ok());
  ASSERT_TRUE(group.run(1).ok());
  EXPECT_TRUE(group.readable(1).empty());
  group.settle();
  EXPECT_EQ(group.readable(1), std::vector<uint64_t>{*read});
}

TEST(Replica, AFollowersReadGoesToTheLeaderAndBack) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  const Result<uint64_t> read = group.at(3).read();
  ASSERT_TRUE(read.ok());
  ASSERT_TRUE(group.run(3).ok());
  group.settle();
  EXPECT_EQ(group.readable(3), std::vector<uint64_t>{*read});
}

TEST(Replica, ADeposedLeaderServesNoReadFromOldAnswers) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  // Replica 2's answer to a first read is on its way twice; the second one comes much later.
  ASSERT_TRUE(group.at(1).read().ok());
  ASSERT_TRUE(group.run(1).ok());
  std::vector<PeerFrame> late;
  for (const PeerFrame& beat : group.take()) {
    ASSERT_TRUE(group.deliver(beat).ok());
    for (PeerFrame& answer : group.take()) late.push_back(std::move(answer));
  }
  ASSERT_EQ(late.size(), 2u);
  for (const PeerFrame& answer : late) ASSERT_TRUE(group.deliver(answer).ok());
  (void)group.take();
  ASSERT_EQ(group.readable(1).size(), 1u);

  group.isolate(1);
  group.elect(2);
  group.commit(2, "unseen by the old leader");
  const Result<uint64_t> stale = group.at(1).read();
  ASSERT_TRUE(stale.ok());  // It does not know yet that it was deposed.
  ASSERT_TRUE(group.run(1).ok());
  (void)group.take();
  for (const PeerFrame& answer : late) (void)group.deliver(answer);
  EXPECT_EQ(group.readable(1).size(), 1u);
}

TEST(Replica, ReadsOfARestartedReplicaShareNoContextWithOlderOnes) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  const auto context = [&] {
    EXPECT_TRUE(group.at(3).read().ok());
    EXPECT_TRUE(group.run(3).ok());
    for (const PeerFrame& frame : group.take()) {
      if (frame.message.kind == MessageKind::kRead) return frame.message.entries.front().data;
    }
    return std::string();
  };
  const std::string first = context();
  const std::string second = context();
  group.stop(3);
  ASSERT_TRUE(group.start(3).ok());
  group.tick(1);
  group.settle();
  const std::string third = context();
  EXPECT_EQ(first.size(), 24u);
  EXPECT_NE(first, second);
  EXPECT_NE(first, third);
  EXPECT_NE(second, third);
}

TEST(Replica, OpenReadsAreLostWithTheLeader) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  group.isolate(1);
  const Result<uint64_t> read = group.at(1).read();
  ASSERT_TRUE(read.ok());
  group.tick(1, 25);  // No majority answers: it steps down.
  EXPECT_EQ(group.at(1).state().role == Role::kLeader, false);
  EXPECT_EQ(group.lost_reads(1), std::vector<uint64_t>{*read});
}

TEST(Replica, AReadBeforeTheFirstCommitOfATermIsRefused) {
  ManualGroup group(3);
  EXPECT_EQ(group.at(1).read().error().code, ErrorCode::kUnavailable);
  group.at(1).campaign();
  ASSERT_TRUE(group.run(1).ok());
  for (int round = 0; round < 2; ++round) {  // Pre-votes, then votes; its first entry reaches nobody.
    for (const PeerFrame& request : group.take()) ASSERT_TRUE(group.deliver(request).ok());
    for (const PeerFrame& answer : group.take()) ASSERT_TRUE(group.deliver(answer).ok());
  }
  ASSERT_EQ(group.at(1).state().role, Role::kLeader);
  EXPECT_EQ(group.at(1).read().error().code, ErrorCode::kUnavailable);
}

// Disks.

TEST(Replica, AnEmptyDiskUnderAnOldIdIsRefusedByTheOthers) {
  ManualGroup group(3);
  group.elect(1);
  group.stop(3);
  group.disk(3).wipe();
  EXPECT_EQ(group.start(3).error().code, ErrorCode::kNotFound);
  // Somebody makes a new log there, with a number of its own.
  ASSERT_TRUE(
      group.disk(3)
          .create({.cluster = ManualGroup::kCluster, .replica = 3, .store = 4'711}, group.at(1).members())
          .ok());
  ASSERT_TRUE(group.start(3).ok());
  const uint64_t term = group.at(1).state().hard_state.term;
  const PeerFrame vote = {.cluster = ManualGroup::kCluster,
                          .from_store = 4'711,
                          .to_store = ManualGroup::store_id(1),
                          .message = {.kind = MessageKind::kVoteAnswer, .to = 1, .from = 3, .term = term}};
  const Result<Unit> received = group.deliver(vote);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, ErrorCode::kPermissionDenied);
  EXPECT_NE(received.error().message.find("with a new id"), std::string::npos);
  // And it does not listen to those who mean its predecessor.
  PeerFrame beat = vote;
  beat.message = {.kind = MessageKind::kHeartbeat, .to = 3, .from = 1, .term = term};
  beat.from_store = ManualGroup::store_id(1);
  beat.to_store = ManualGroup::store_id(3);
  EXPECT_EQ(group.deliver(beat).error().code, ErrorCode::kPermissionDenied);
}

TEST(Replica, MessagesOfAnotherGroupAreRefused) {
  ManualGroup group(3);
  group.elect(1);
  const PeerFrame foreign = {.cluster = ManualGroup::kCluster + 1,
                             .from_store = ManualGroup::store_id(1),
                             .message = {.kind = MessageKind::kHeartbeat, .to = 2, .from = 1, .term = 9}};
  EXPECT_EQ(group.deliver(foreign).error().code, ErrorCode::kPermissionDenied);
}

// Members.

TEST(Replica, GroupGrowsByALearnerThatBecomesAVoter) {
  ManualGroup group(1);
  group.elect(1);
  group.commit(1, "one");
  group.add(2);
  change(group, 1, {add_learner(2)});
  group.settle();
  EXPECT_EQ(group.applied(2), Strings{"one"});
  change(group, 1, {add_voter(2)});
  EXPECT_EQ(group.at(1).members().voters, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(group.at(2).members(), group.at(1).members());
  group.isolate(2);
  group.commit(1, "alone");
  EXPECT_EQ(group.applied(1), Strings{"one"});  // Two voters: one is no majority.
}

TEST(Replica, ALearnerThatLacksTheLogDoesNotVote) {
  ManualGroup group(3);
  group.elect(1);
  change(group, 1, {add_learner(4)});
  for (int i = 0; i < 10'100; ++i) ASSERT_TRUE(group.at(1).propose("x").ok());
  ASSERT_TRUE(group.run(1).ok());
  group.settle();
  EXPECT_EQ(group.at(1).propose_members({add_voter(4)}).error().code, ErrorCode::kUnavailable);
}

TEST(Replica, ANewMemberGetsASnapshotThatKnowsIt) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  ASSERT_TRUE(group.at(1).compact("before").ok());  // Too old for the new member: it would refuse it.
  group.add(4);
  change(group, 1, {add_learner(4)});
  EXPECT_EQ(group.installed(4), 0u);
  ASSERT_TRUE(group.at(1).wants_snapshot());
  ASSERT_TRUE(group.at(1).compact("behind").ok());
  for (int i = 0; i < 4; ++i) {
    group.tick(1);
    group.settle();
  }
  EXPECT_EQ(group.installed(4), 1u);
  EXPECT_EQ(group.at(4).members(), group.at(1).members());
}

TEST(Replica, ALeaderThatIsRemovedStepsDown) {
  ManualGroup group(3);
  group.elect(1);
  ASSERT_TRUE(group.at(1).propose_members({removed(1)}).ok());
  ASSERT_TRUE(group.at(1).propose("behind").ok());  // Not yet durable when the removal is applied.
  ASSERT_TRUE(group.run(1).ok());
  group.settle();
  EXPECT_NE(group.at(1).state().role, Role::kLeader);
  EXPECT_FALSE(group.at(1).state().promotable);
  group.elect(2);
  group.commit(2, "on");
  EXPECT_EQ(group.at(2).members().voters, (std::vector<uint64_t>{2, 3}));
}

TEST(Replica, SeveralChangesTakeEffectTogetherAndEndWithoutHelp) {
  ManualGroup group(3);
  group.elect(1);
  group.add(4);
  change(group, 1, {add_learner(4)});
  change(group, 1, {add_voter(4), removed(3)});
  group.tick(1);
  group.settle();
  EXPECT_FALSE(group.at(1).state().joint);
  EXPECT_EQ(group.at(1).members().voters, (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(group.at(4).members(), group.at(1).members());
}

TEST(Replica, ANewLeaderEndsTheChangeThatItsPredecessorBegan) {
  ManualGroup group(3);
  group.elect(1);
  group.add(4);
  change(group, 1, {add_learner(4)});
  ASSERT_TRUE(group.at(1).propose_members({add_voter(4), removed(3)}).ok());
  ASSERT_TRUE(group.run(1).ok());
  // Everybody gets the entry; the answers, and with them the leader's commit, get lost.
  for (const PeerFrame& append : group.take()) (void)group.deliver(append);
  (void)group.take();
  group.isolate(1);
  group.elect(2);
  for (int i = 0; i < 6; ++i) {
    group.tick(2);
    group.settle();
  }
  EXPECT_FALSE(group.at(2).state().joint);
  EXPECT_EQ(group.at(2).members().voters, (std::vector<uint64_t>{1, 2, 4}));
}

TEST(Replica, OneChangeAtATime) {
  ManualGroup group(3);
  group.elect(1);
  ASSERT_TRUE(group.at(1).propose_members({add_learner(4)}).ok());
  EXPECT_EQ(group.at(1).propose_members({add_learner(5)}).error().code, ErrorCode::kAlreadyExists);
}

TEST(Replica, TransferHandsTheLeadershipOver) {
  ManualGroup group(3);
  group.elect(1);
  group.commit(1, "one");
  ASSERT_TRUE(group.at(1).transfer(3).ok());
  EXPECT_EQ(group.at(1).propose("x").error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(group.run(1).ok());
  group.settle();
  EXPECT_EQ(group.at(3).state().role, Role::kLeader);
  EXPECT_EQ(group.at(1).transfer(2).error().code, ErrorCode::kUnavailable);
}

TEST(Replica, TooMuchThatIsNotCommittedIsRefused) {
  ManualGroup group(3);
  group.elect(1);
  group.isolate(2);
  group.isolate(3);
  const std::string large(1u << 20, 'x');
  int taken = 0;
  while (taken < 1'000 && group.at(1).propose(large).ok()) ++taken;
  EXPECT_EQ(taken, 64);
  EXPECT_EQ(group.at(1).propose(large).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace gpusched::consensus
