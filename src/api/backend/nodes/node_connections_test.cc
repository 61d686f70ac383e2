#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/backend/nodes/node_enrollment.h"
#include "base/limits.h"
#include "engine/testing/test_engine.h"

// Right to speak as a node, and its end: the connections alone, which is told what the engine decided.
namespace gpusched::api {
namespace {

class NodeConnectionss : public ::testing::Test {
 protected:
  NodeConnectionss() {
    EngineConfig config = engine_.state().config;
    config.feature_level = kFeatureLevel;
    engine_.apply(Configure{.config = config});
  }
  /// Decides, and tells the connections.
  Applied apply(const Command& command) {
    Applied applied = engine_.apply(command);
    connections_->observe(engine_.state(), {.events = engine_.events(), .last = {}, .reasons = {}});
    return applied;
  }
  /// The node joins, once more if it had: the claim of its certificate from then on.
  sign::NodeClaim join(const std::string& node) {
    const Applied ticket = apply(CreateNodeTicket{.node = node,
                                                  .prefix = "prefix" + std::to_string(100 + ++made_),
                                                  .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                                                  .expires_at = engine_.now() + hours(1),
                                                  .by = "ana"});
    const Applied admitted =
        apply(AdmitNode{.ticket = NodeTicketId{ticket.first_id},
                        .identity = {},
                        .node = node,
                        .key = Blob(std::string(limits::kPublicKeyHashBytes, static_cast<char>('a' + made_))),
                        .expires_at = engine_.now() + hours(24)});
    EXPECT_FALSE(admitted.rejection.has_value());
    return {.node = node, .identity = admitted.first_id, .expires_at = at(hours(24))};
  }
  int64_t at(Duration from_now) const { return (engine_.now() + from_now).ns / seconds(1).ns; }
  Answer<std::shared_ptr<void>> let_in(const std::string& node, std::optional<sign::NodeClaim> claim,
                                       bool required = false) {
    return connections_->let_in(node, claim, required,
                                [this, node](const ApiError& why) { ended_.emplace_back(node, why.kind); });
  }
  using Ended = std::vector<std::pair<std::string, ErrorKind>>;

  gpusched::testing::TestEngine engine_;
  std::shared_ptr<NodeConnections> connections_ = std::make_shared<NodeConnections>();
  Ended ended_;  ///< Streams that the connections sent away, and why.
  int made_ = 0;
};

TEST_F(NodeConnectionss, ANameThatNeverJoinedNeedsNoCertificateUnlessAllDo) {
  EXPECT_TRUE(let_in("n1", std::nullopt).ok());
  EXPECT_FALSE(connections_->refusal("n1", std::nullopt, false).has_value());
  const auto refused = let_in("n1", std::nullopt, true);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnauthenticated);
  EXPECT_NE(refused.error().message.find("agent.require_certificates"), std::string::npos);
}

TEST_F(NodeConnectionss, ANameThatJoinedNeedsItsOwnCertificate) {
  const sign::NodeClaim n1 = join("n1"), n2 = join("n2");
  EXPECT_TRUE(let_in("n1", n1).ok());
  EXPECT_TRUE(let_in("n1", n1, true).ok());
  EXPECT_FALSE(let_in("n1", std::nullopt).ok());
  EXPECT_FALSE(let_in("n1", n2).ok());
  EXPECT_FALSE(let_in("n3", n1).ok());
  sign::NodeClaim unknown = n1;
  unknown.identity += 1'000;
  EXPECT_FALSE(let_in("n1", unknown).ok());
  unknown.node = "n3";  // Such as one of a scheduler whose data is gone.
  EXPECT_FALSE(let_in("n3", unknown).ok());
}

TEST_F(NodeConnectionss, RevocationEndsWhatIsOpenOfThatNodeAlone) {
  const sign::NodeClaim n1 = join("n1"), n2 = join("n2");
  const auto first = let_in("n1", n1), second = let_in("n1", n1), other = let_in("n2", n2);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  apply(RevokeNode{.node = "n1", .by = "ana"});
  EXPECT_EQ(ended_, (Ended{{"n1", ErrorKind::kNodeRevoked}, {"n1", ErrorKind::kNodeRevoked}}));
  EXPECT_EQ(let_in("n1", n1).error().kind, ErrorKind::kNodeRevoked);
  EXPECT_EQ(let_in("n1", std::nullopt).error().kind, ErrorKind::kNodeRevoked);
  EXPECT_TRUE(let_in("n2", n2).ok());
}

TEST_F(NodeConnectionss, ItStaysRevokedForABookThatIsFilledLater) {
  const sign::NodeClaim n1 = join("n1");
  apply(RevokeNode{.node = "n1", .by = "ana"});
  const auto later = std::make_shared<NodeConnections>();
  later->fill(engine_.state());
  const auto nobody = [](const ApiError&) {};
  EXPECT_EQ(later->let_in("n1", n1, false, nobody).error().kind, ErrorKind::kNodeRevoked);
  // Joining again makes it a node again, by the new certificate alone.
  const sign::NodeClaim anew = join("n1");
  EXPECT_FALSE(let_in("n1", n1).ok());
  EXPECT_TRUE(let_in("n1", anew).ok());
}

TEST_F(NodeConnectionss, JoiningAnewEndsTheOlderMachineAndWhoHadNoCertificate) {
  auto open = let_in("n1", std::nullopt);
  const sign::NodeClaim older = join("n1");
  EXPECT_EQ(ended_, (Ended{{"n1", ErrorKind::kUnauthenticated}}));
  open = let_in("n1", older);
  ended_.clear();
  const sign::NodeClaim newer = join("n1");
  EXPECT_EQ(ended_, (Ended{{"n1", ErrorKind::kUnauthenticated}}));
  EXPECT_NE(newer.identity, older.identity);
  EXPECT_NE(let_in("n1", older).error().message.find("has joined anew"), std::string::npos);
  EXPECT_TRUE(let_in("n1", newer).ok());
}

TEST_F(NodeConnectionss, WhoIsGoneIsNotEnded) {
  const sign::NodeClaim n1 = join("n1");
  {
    const auto place = let_in("n1", n1);
  }
  apply(RevokeNode{.node = "n1", .by = "ana"});
  connections_->end_expired(at(hours(1'000)));
  EXPECT_TRUE(ended_.empty());
}

TEST_F(NodeConnectionss, WhoIsEndedMayLeaveAtOnce) {
  const sign::NodeClaim n1 = join("n1");
  std::shared_ptr<void> place;
  Answer<std::shared_ptr<void>> open =
      connections_->let_in("n1", n1, false, [&place](const ApiError&) { place = nullptr; });
  ASSERT_TRUE(open.ok());
  place = std::move(*open);
  apply(RevokeNode{.node = "n1", .by = "ana"});
  EXPECT_EQ(place, nullptr);
}

TEST_F(NodeConnectionss, AnExpiredCertificateEndsItsStreamUnlessItWasRenewed) {
  const sign::NodeClaim n1 = join("n1"), n2 = join("n2");
  const auto first = let_in("n1", n1), second = let_in("n2", n2), plain = let_in("n3", std::nullopt);
  connections_->end_expired(n1.expires_at);
  EXPECT_TRUE(ended_.empty());  // Its last second.
  apply(AdmitNode{.ticket = {},
                  .identity = NodeIdentityId{n2.identity},
                  .node = "n2",
                  .key = Blob(std::string(limits::kPublicKeyHashBytes, 'z')),
                  .expires_at = engine_.now() + hours(48)});
  connections_->end_expired(n1.expires_at + 1);
  EXPECT_EQ(ended_, (Ended{{"n1", ErrorKind::kUnauthenticated}}));
  ended_.clear();
  connections_->end_expired(at(hours(48)) + 1);
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_.back().first, "n2");
}

}  // namespace
}  // namespace gpusched::api
