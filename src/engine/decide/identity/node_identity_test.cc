#include <gtest/gtest.h>

#include <string>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

// Identities of nodes: leave that is used once, certificates that are renewed, and revocations that last for
// ever.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class NodeIdentities : public ::testing::Test {
 protected:
  NodeIdentities() { configure(kFeatureLevel); }
  void configure(int64_t level) {
    EngineConfig config = engine.state().config;
    config.feature_level = level;
    engine.apply(Configure{.config = config});
  }
  CreateNodeTicket ticket_of(const std::string& node) {
    return {.node = node,
            .prefix = "prefix" + std::to_string(10 + ++made_),
            .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
            .expires_at = engine.now() + hours(1),
            .by = "ana"};
  }
  NodeTicketId make_ticket(const std::string& node) {
    const Applied applied = engine.apply(ticket_of(node));
    EXPECT_FALSE(applied.rejection.has_value());
    return NodeTicketId{applied.first_id};
  }
  static Blob key(char letter) { return Blob(std::string(limits::kPublicKeyHashBytes, letter)); }
  AdmitNode by_ticket(NodeTicketId ticket, const std::string& node, char letter = 'k') {
    return {.ticket = ticket,
            .identity = {},
            .node = node,
            .key = key(letter),
            .expires_at = engine.now() + hours(24 * 90)};
  }
  AdmitNode renewal(NodeIdentityId identity, const std::string& node, char letter = 'k') {
    AdmitNode command = by_ticket({}, node, letter);
    command.identity = identity;
    return command;
  }
  NodeIdentityId admit(const std::string& node) {
    const Applied applied = engine.apply(by_ticket(make_ticket(node), node));
    EXPECT_FALSE(applied.rejection.has_value());
    return NodeIdentityId{applied.first_id};
  }
  const NodeIdentity& identity(const std::string& node) { return *engine.state().node_identities.find(node); }

  TestEngine engine;
  int made_ = 0;
};

TEST_F(NodeIdentities, ATicketMakesTheNodeThatItIsFor) {
  const NodeTicketId ticket = make_ticket("n1");
  const Applied applied = engine.apply(by_ticket(ticket, "n1"));
  EXPECT_FALSE(applied.rejection.has_value());
  EXPECT_EQ(identity("n1").id.value, applied.first_id);
  EXPECT_EQ(identity("n1").key, key('k'));
  EXPECT_EQ(identity("n1").admitted_by, "ana");
  EXPECT_EQ(identity("n1").admitted_at, engine.now());
  EXPECT_EQ(identity("n1").expires_at, engine.now() + hours(24 * 90));
  EXPECT_FALSE(identity("n1").is_revoked());
}

TEST_F(NodeIdentities, BeforeFeatureLevelTenThereAreNone) {
  configure(9);
  expect_rejected(engine.apply(ticket_of("n1")), RejectionCode::kStale);
  expect_rejected(engine.apply(by_ticket(NodeTicketId{1}, "n1")), RejectionCode::kStale);
  EXPECT_TRUE(engine.state().node_identities.tickets().empty());
}

TEST_F(NodeIdentities, ATicketIsUsedOnce) {
  const NodeTicketId ticket = make_ticket("n1");
  engine.apply(by_ticket(ticket, "n1", 'a'));
  const NodeIdentityId first = identity("n1").id;
  expect_rejected(engine.apply(by_ticket(ticket, "n1", 'b')), RejectionCode::kNodeTicketUsed);
  EXPECT_EQ(identity("n1").id, first);
  EXPECT_EQ(identity("n1").key, key('a'));
}

TEST_F(NodeIdentities, WhoLostTheAnswerAsksAgainWithTheSameKey) {
  const NodeTicketId ticket = make_ticket("n1");
  engine.apply(by_ticket(ticket, "n1"));
  const NodeIdentityId first = identity("n1").id;
  engine.advance(minutes(5));
  EXPECT_FALSE(engine.apply(by_ticket(ticket, "n1")).rejection.has_value());
  EXPECT_EQ(identity("n1").id, first);
  EXPECT_EQ(identity("n1").renewed_at, engine.now());
}

TEST_F(NodeIdentities, ATicketIsForOneNameAndUntilItsEnd) {
  const NodeTicketId ticket = make_ticket("n1");
  expect_rejected(engine.apply(by_ticket(ticket, "n2")), RejectionCode::kNodeTicketNotFound);
  expect_rejected(engine.apply(by_ticket(NodeTicketId{404}, "n1")), RejectionCode::kNodeTicketNotFound);
  engine.advance(hours(1));
  expect_rejected(engine.apply(by_ticket(ticket, "n1")), RejectionCode::kNodeTicketExpired);
  EXPECT_EQ(engine.state().node_identities.find("n1"), nullptr);
}

TEST_F(NodeIdentities, ATicketThatIsOverAlreadyIsRefused) {
  CreateNodeTicket command = ticket_of("n1");
  command.expires_at = engine.now();
  expect_rejected(engine.apply(command), RejectionCode::kNodeTicketExpiry);
}

TEST_F(NodeIdentities, ANewerTicketEndsTheOlderOneThatNobodyUsed) {
  const NodeTicketId first = make_ticket("n1");
  const NodeTicketId second = make_ticket("n1");
  expect_rejected(engine.apply(by_ticket(first, "n1")), RejectionCode::kNodeTicketNotFound);
  EXPECT_FALSE(engine.apply(by_ticket(second, "n1")).rejection.has_value());
}

TEST_F(NodeIdentities, JoiningAnewReplacesTheIdentity) {
  const NodeIdentityId first = admit("n1");
  const NodeIdentityId second = admit("n1");
  EXPECT_NE(first, second);
  EXPECT_EQ(identity("n1").id, second);
  EXPECT_EQ(engine.state().node_identities.find(first), nullptr);
  expect_rejected(engine.apply(renewal(first, "n1")), RejectionCode::kNodeIdentityNotFound);
}

TEST_F(NodeIdentities, ACertificateIsRenewedForTheNodeThatHasIt) {
  const NodeIdentityId id = admit("n1");
  engine.advance(hours(24 * 60));
  expect_rejected(engine.apply(renewal(id, "n2")), RejectionCode::kNodeIdentityNotFound);
  EXPECT_FALSE(engine.apply(renewal(id, "n1", 'r')).rejection.has_value());
  EXPECT_EQ(identity("n1").id, id);
  EXPECT_EQ(identity("n1").key, key('r'));
  EXPECT_EQ(identity("n1").expires_at, engine.now() + hours(24 * 90));
}

TEST_F(NodeIdentities, WhatIsRevokedStaysSo) {
  const NodeTicketId used = make_ticket("n1");
  engine.apply(by_ticket(used, "n1"));
  const NodeIdentityId id = identity("n1").id;
  const NodeTicketId unused = make_ticket("n1");
  engine.apply(RevokeNode{.node = "n1", .by = "bob"});
  EXPECT_TRUE(identity("n1").is_revoked());
  EXPECT_EQ(identity("n1").revoked_by, "bob");
  const Time at = identity("n1").revoked_at;
  engine.advance(minutes(1));
  expect_rejected(engine.apply(RevokeNode{.node = "n1", .by = "ana"}), RejectionCode::kNodeRevoked);
  expect_rejected(engine.apply(renewal(id, "n1")), RejectionCode::kNodeRevoked);
  expect_rejected(engine.apply(by_ticket(used, "n1")), RejectionCode::kNodeRevoked);
  expect_rejected(engine.apply(by_ticket(unused, "n1")), RejectionCode::kNodeTicketNotFound);
  EXPECT_EQ(identity("n1").revoked_at, at);
  expect_rejected(engine.apply(RevokeNode{.node = "n2", .by = "ana"}), RejectionCode::kNodeIdentityNotFound);
}

TEST_F(NodeIdentities, AfterARevocationATicketMakesItANodeAnew) {
  const NodeIdentityId revoked = admit("n1");
  engine.apply(RevokeNode{.node = "n1", .by = "bob"});
  const NodeIdentityId again = admit("n1");
  EXPECT_FALSE(identity("n1").is_revoked());
  EXPECT_EQ(identity("n1").id, again);
  expect_rejected(engine.apply(renewal(revoked, "n1")), RejectionCode::kNodeIdentityNotFound);
}

TEST_F(NodeIdentities, TicketsAreForgottenADayAfterTheirEnd) {
  const NodeTicketId unused = make_ticket("n1");
  engine.advance(hours(1) + limits::kNodeTicketsKept - milliseconds(1));
  make_ticket("n2");
  EXPECT_NE(engine.state().node_identities.find_ticket(unused), nullptr);
  engine.advance(milliseconds(1));
  make_ticket("n3");
  EXPECT_EQ(engine.state().node_identities.find_ticket(unused), nullptr);
}

TEST_F(NodeIdentities, ThereAreBoundedManyTickets) {
  for (uint32_t i = 0; i < limits::kNodeTicketsMax; ++i) make_ticket("n" + std::to_string(i));
  expect_rejected(engine.apply(ticket_of("more")), RejectionCode::kNodeIdentityLimit);
  engine.advance(hours(1) + limits::kNodeTicketsKept);
  make_ticket("more");
  EXPECT_LT(engine.state().node_identities.tickets().size(), limits::kNodeTicketsMax);
}

TEST_F(NodeIdentities, OnlyWhatMayBeOneIsProposed) {
  EXPECT_TRUE(well_formed(ticket_of("n1")));
  EXPECT_FALSE(well_formed(ticket_of("")));
  EXPECT_FALSE(well_formed(ticket_of(std::string(limits::kNameBytesMax + 1, 'n'))));
  EXPECT_STREQ(unprintable_field(ticket_of("a\nb")), "name");
  AdmitNode both = by_ticket(NodeTicketId{7}, "n1");
  EXPECT_TRUE(well_formed(both));
  both.identity = NodeIdentityId{8};
  EXPECT_FALSE(well_formed(both));
  EXPECT_FALSE(well_formed(by_ticket({}, "n1")));
  AdmitNode short_key = by_ticket(NodeTicketId{7}, "n1");
  short_key.key = Blob("short");
  EXPECT_FALSE(well_formed(short_key));
}

}  // namespace
}  // namespace gpusched
