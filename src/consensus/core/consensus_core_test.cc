#include "consensus/core/consensus_core.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/check.h"
#include "base/prng.h"
#include "consensus/testing/manual_group.h"

namespace gpusched::consensus {
namespace {

const Members kThree = {
    .voters = {1, 2, 3},
    .stores = {{.id = 1, .store = 1'001}, {.id = 2, .store = 1'002}, {.id = 3, .store = 1'003}},
    .id_max = 3};

/// A log with entries 1 to `last` of one term.
class FixedLog : public LogReader {
 public:
  explicit FixedLog(uint64_t last) : last_(last) {}
  uint64_t first_index() const override { return 1; }
  uint64_t last_index() const override { return last_; }
  uint64_t term(uint64_t index) const override { return index == 0 || index > last_ ? 0 : 1; }
  std::vector<Entry> entries(uint64_t low, uint64_t high, uint64_t) const override {
    std::vector<Entry> range;
    for (uint64_t index = low; index < high; ++index)
      range.push_back({.index = index + skip, .term = 1, .data = "x"});
    return range;
  }
  std::optional<Snapshot> snapshot(uint64_t) const override { return std::nullopt; }

  uint64_t skip = 0;

 private:
  uint64_t last_;
};

Result<std::unique_ptr<ConsensusCore>> start(const FixedLog& log, CoreOptions options, HardState hard = {}) {
  if (options.id == 0) options.id = 1;
  if (options.boot == 0) options.boot = 1;
  return ConsensusCore::start(options, hard, 0, kThree, log);
}

TEST(ConsensusCoreStart, RefusesMessagesOfOneEntry) {
  const FixedLog log(0);
  const auto core = start(log, {.message_bytes_max = 0});
  ASSERT_FALSE(core.ok());
  EXPECT_NE(core.error().message.find("message_bytes_max is 0"), std::string::npos);
}

TEST(ConsensusCoreStart, RefusesAHardStateThatTheLogContradicts) {
  const FixedLog log(5);
  EXPECT_TRUE(start(log, {}, {.term = 1, .commit = 5}).ok());
  EXPECT_FALSE(start(log, {}, {.term = 1, .commit = 6}).ok());
}

TEST(ConsensusCoreStart, RefusesImpossibleMembers) {
  const FixedLog log(0);
  EXPECT_FALSE(ConsensusCore::start({.id = 1, .boot = 1}, {}, 0, {}, log).ok());
  EXPECT_FALSE(
      ConsensusCore::start({.id = 1, .boot = 1}, {}, 0, {.voters = {1, 2}, .learners = {2}}, log).ok());
  EXPECT_FALSE(ConsensusCore::start({.id = 1, .boot = 0}, {}, 0, kThree, log).ok());
}

TEST(ConsensusCoreFault, EndsTheProcessAndLeavesNoHalfDoneCore) {
  FixedLog log(5);
  auto core = start(log, {}, {.term = 1, .commit = 5});
  ASSERT_TRUE(core.ok());
  log.skip = 1;  // The log breaks its promise: the crate panics inside `ready`.
  const ThrowingChecks checks;
  EXPECT_THROW((*core)->ready(), CheckFailure);
  EXPECT_THROW((*core)->tick(), CheckFailure);  // Poisoned for good.
}

TEST(ConsensusCoreOrder, NothingChangesBetweenReadyAndAppended) {
  const FixedLog log(0);
  auto core = start(log, {});
  ASSERT_TRUE(core.ok());
  (*core)->campaign();
  (void)(*core)->ready();
  const ThrowingChecks checks;
  EXPECT_THROW((*core)->tick(), CheckFailure);
}

TEST(ConsensusCoreElections, DependOnSeedAndTermOnly) {
  const FixedLog log(0);
  std::set<uint64_t> timeouts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto first = start(log, {.seed = seed});
    const auto second = start(log, {.seed = seed});
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(second.ok());
    for (int tick = 0; tick < 50; ++tick) {
      EXPECT_EQ((*first)->state(), (*second)->state());
      (*first)->tick();
      (*second)->tick();
    }
    timeouts.insert((*first)->state().election_ticks);
  }
  EXPECT_GT(timeouts.size(), 3u);
}

class Group : public testing::Test {
 protected:
  PeerFrame frame(uint64_t from, uint64_t to, PeerMessage message) {
    message.from = from;
    message.to = to;
    return {.cluster = ManualGroup::kCluster,
            .from_store = ManualGroup::store_id(from),
            .to_store = ManualGroup::store_id(to),
            .message = std::move(message)};
  }
  std::string refusal(uint64_t from, uint64_t to, PeerMessage message) {
    const CoreState before = group_.at(to).state();
    const Result<Unit> received = group_.deliver(frame(from, to, std::move(message)));
    EXPECT_EQ(group_.at(to).state(), before);
    return received ? "" : received.error().message;
  }
  ManualGroup group_{3};
};

TEST_F(Group, OnlyTheLeaderTakesProposals) {
  group_.elect(1);
  for (const uint64_t follower : {2, 3}) {
    EXPECT_EQ(group_.at(follower).propose("x").error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(group_.at(follower).propose_members({{.kind = ChangeKind::kRemove, .id = 3}}).error().code,
              ErrorCode::kUnavailable);
    EXPECT_EQ(group_.at(follower).transfer(2).error().code, ErrorCode::kUnavailable);
    ASSERT_TRUE(group_.run(follower).ok());
  }
  EXPECT_TRUE(group_.take().empty());  // Nothing was forwarded.
}

TEST_F(Group, ForwardedProposalsAndTransfersAreDropped) {
  group_.elect(1);
  EXPECT_NE(refusal(2, 1, {.kind = MessageKind::kPropose, .entries = {{.data = "x"}}}), "");
  EXPECT_NE(refusal(2, 1, {.kind = MessageKind::kTransfer, .term = 1}), "");
  EXPECT_EQ(group_.at(1).state().transferring_to, 0u);
}

TEST_F(Group, MessagesOfAFarFutureTermAreRefused) {
  group_.elect(1);
  const uint64_t term = group_.at(2).state().hard_state.term;
  const uint64_t far = (uint64_t{1} << 32) + term + 1;
  for (const MessageKind kind : {MessageKind::kAppend, MessageKind::kHeartbeat, MessageKind::kVote,
                                 MessageKind::kPreVote, MessageKind::kAppendAnswer}) {
    EXPECT_NE(refusal(3, 2, {.kind = kind, .term = far}), "") << static_cast<int>(kind);
    EXPECT_NE(refusal(3, 2, {.kind = kind, .term = UINT64_MAX}), "") << static_cast<int>(kind);
  }
  EXPECT_TRUE(group_.deliver(frame(3, 2, {.kind = MessageKind::kAppend, .term = term + 100})).ok());
}

TEST_F(Group, MessagesThatWouldBreakTheCoreAreRefused) {
  group_.elect(1);
  group_.commit(1, "one");
  const uint64_t term = group_.at(1).state().hard_state.term;
  const uint64_t last = group_.at(1).state().last_index;
  const Entry next = {.index = last + 1, .term = term, .data = "x"};
  const std::vector<PeerMessage> to_follower = {
      {.kind = MessageKind::kAppend, .term = 0},  // Without a term it passes for one of its own.
      {.kind = MessageKind::kAppend,
       .term = term,
       .index = last,
       .entries = {{.index = last + 2, .term = term}}},
      {.kind = MessageKind::kAppend, .term = term, .log_term = term + 1, .index = last},
      {.kind = MessageKind::kAppend,
       .term = term,
       .log_term = term,
       .index = last,
       .entries = {{.index = last + 1, .term = term + 1}}},
      {.kind = MessageKind::kAppend, .term = term, .log_term = term, .index = last, .entries = {next, next}},
      {.kind = MessageKind::kAppend, .term = term + 1, .log_term = term - 1, .index = last, .entries = {}},
      {.kind = MessageKind::kAppend, .term = term, .index = last + 4, .commit = last + 4},
      {.kind = MessageKind::kAppend,
       .term = term,
       .index = UINT64_MAX,
       .entries = {{.index = 0, .term = term}}},
      {.kind = MessageKind::kHeartbeat, .term = term, .context = std::string(100, 'x')},
      {.kind = MessageKind::kSnapshot, .term = term},
      {.kind = MessageKind::kSnapshot,
       .term = term,
       .snapshot = Snapshot{.index = 0, .term = term, .members = kThree}},
      {.kind = MessageKind::kSnapshot, .term = term, .snapshot = Snapshot{.index = 9, .term = term}},
      {.kind = MessageKind::kSnapshot,
       .term = term,
       .snapshot = Snapshot{.index = 9, .term = term, .members = {.voters = {1, 2}, .learners = {2}}}},
      {.kind = MessageKind::kReadAnswer, .term = term, .entries = {}},
  };
  for (std::size_t i = 0; i < to_follower.size(); ++i) {
    EXPECT_NE(refusal(1, 2, to_follower[i]), "") << "message " << i;
  }
  const std::vector<PeerMessage> to_leader = {
      {.kind = MessageKind::kAppend, .term = term},  // It leads that term itself.
      {.kind = MessageKind::kAppendAnswer, .term = term, .index = last + 1},
      {.kind = MessageKind::kAppendAnswer, .term = term, .request_snapshot = last + 1, .reject = true},
      {.kind = MessageKind::kRead, .entries = {}},
      {.kind = MessageKind::kRead, .entries = {{.data = "x"}}},
      {.kind = MessageKind::kRead, .term = term, .entries = {{.data = std::string(24, 'x')}}},
  };
  for (std::size_t i = 0; i < to_leader.size(); ++i) {
    EXPECT_NE(refusal(2, 1, to_leader[i]), "") << "message " << i;
  }
  EXPECT_NE(refusal(3, 2, {.kind = MessageKind::kAppend, .term = term}), "");  // Another one leads that term.
  PeerFrame of_itself = frame(2, 2, {.kind = MessageKind::kAppend, .term = term});
  EXPECT_FALSE(group_.deliver(of_itself).ok());
}

TEST_F(Group, AHeartbeatBeyondTheLogTellsThatTheDiskForgot) {
  group_.elect(1);
  const CoreState state = group_.at(2).state();
  const Result<Unit> received = group_.deliver(frame(
      1, 2,
      {.kind = MessageKind::kHeartbeat, .term = state.hard_state.term, .commit = state.last_index + 1}));
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, ErrorCode::kCorrupt);
}

TEST_F(Group, NoMessageWhateverBreaksACore) {
  group_.elect(1);
  group_.commit(1, "one");
  group_.commit(1, "two");
  Prng draw(3);
  const auto number = [&] { return draw.chance(50) ? draw.next() : draw.below(8); };
  uint64_t taken = 0;
  for (int round = 0; round < 30'000; ++round) {
    PeerMessage message;
    message.kind = static_cast<MessageKind>(draw.below(20));
    for (uint64_t* field : {&message.term, &message.log_term, &message.index, &message.commit,
                            &message.commit_term, &message.request_snapshot, &message.reject_hint}) {
      *field = number();
    }
    message.reject = draw.chance(300);
    for (uint64_t i = draw.below(4); i > 0; --i) {
      message.entries.push_back(
          {.index = draw.chance(700) ? message.index + message.entries.size() + 1 : number(),
           .term = draw.chance(500) ? message.term : number(),
           .kind = draw.chance(100) ? EntryKind::kMembers : EntryKind::kData,
           .data = draw.chance(100) ? std::string(24, 'c') : std::string("\1\0", 2)});
    }
    if (draw.chance(100)) {
      message.snapshot = Snapshot{.index = number(), .term = number(), .members = kThree, .data = "s"};
    }
    const uint64_t from = 1 + draw.below(4);
    const uint64_t to = 1 + draw.below(3);
    if (group_.deliver(frame(from, to, std::move(message))).ok()) ++taken;
    if (draw.chance(100)) group_.tick(1 + draw.below(3));
    (void)group_.take();
  }
  EXPECT_GT(taken, 1'000u);
}

}  // namespace
}  // namespace gpusched::consensus
