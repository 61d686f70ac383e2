#include "api/backend/nodes/node_enrollment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>

#include "base/check.h"
#include "sign/api_key.h"

// How machines become nodes and nodes get their next certificates: the enrollment with a host, without any
// server.
namespace gpusched::api {
namespace {

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class NodeEnrollments : public ::testing::Test {
 protected:
  NodeEnrollments() {
    folder_ = (std::filesystem::temp_directory_path() / "gpusched_desk_XXXXXX").string();
    CHECK(::mkdtemp(folder_.data()) != nullptr);
    auto host = Host::open({.data_dir = folder_ + "/data"});
    CHECK(host.ok());
    host_ = std::move(*host);
    EngineConfig config;
    config.feature_level = kFeatureLevel;
    propose(Configure{.config = config});
    auto authority = sign::Authority::open(folder_ + "/ca");
    CHECK(authority.ok());
    authority_ = std::make_shared<const sign::Authority>(std::move(*authority));
    enrollment_ = make_desk();
  }
  ~NodeEnrollments() override {
    host_->stop();
    enrollment_.reset();
    host_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::unique_ptr<NodeEnrollment> make_desk(bool required = false) {
    return std::make_unique<NodeEnrollment>(
        *host_, NodeEnrollmentOptions{.authority = authority_,
                                      .order_key = std::make_shared<const sign::OrderKey>(
                                          sign::OrderKey::of_seed(std::string(32, 's'))),
                                      .valid = hours(24),
                                      .required = required});
  }
  /// Decided, and seen by readers: what a client is told of.
  Decided propose(Command command) {
    std::promise<Decided> done;
    host_->propose(std::move(command), [this, &done](const Result<Decided>& decided) {
      CHECK(decided.ok());
      host_->observer().read(decided->sequence,
                             [&done, seen = *decided](const Observer::View&) { done.set_value(seen); });
    });
    return done.get_future().get();
  }
  /// A node token that is good for an hour.
  std::string token_for(const std::string& node) {
    const sign::NewApiKey token = sign::make_node_token();
    const auto parts = sign::parse_node_token(token.text);
    const Decided made = propose(CreateNodeTicket{.node = node,
                                                  .prefix = std::string(parts->prefix),
                                                  .hash = Blob(token.hash),
                                                  .expires_at = Time{} + seconds(unix_now() + 3'600),
                                                  .by = "ana"});
    EXPECT_FALSE(made.applied.rejection.has_value());
    return token.text;
  }
  static std::string request_of(const std::string& key) { return *sign::make_node_request(key); }
  NodeEnrollment::Issued join(const std::string& node, const std::string& token, const std::string& request) {
    std::promise<NodeEnrollment::Issued> done;
    enrollment_->join(node, token, request,
                      [&done](NodeEnrollment::Issued issued) { done.set_value(std::move(issued)); });
    return done.get_future().get();
  }
  NodeEnrollment::Issued renew(const sign::NodeClaim& claim, const std::string& request) {
    std::promise<NodeEnrollment::Issued> done;
    enrollment_->renew(claim, request,
                       [&done](NodeEnrollment::Issued issued) { done.set_value(std::move(issued)); });
    return done.get_future().get();
  }
  /// A node that has joined, as its certificate says.
  sign::NodeClaim joined(const std::string& node) {
    const NodeEnrollment::Issued issued = join(node, token_for(node), request_of(sign::make_node_key()));
    CHECK(issued.ok());
    return **enrollment_->claim_of(*issued);
  }

  std::string folder_;
  std::unique_ptr<Host> host_;
  std::shared_ptr<const sign::Authority> authority_;
  std::unique_ptr<NodeEnrollment> enrollment_;
};

TEST_F(NodeEnrollments, ATokenGivesACertificateThatIsLetIn) {
  const NodeEnrollment::Issued issued = join("n1", token_for("n1"), request_of(sign::make_node_key()));
  ASSERT_TRUE(issued.ok()) << issued.error().message;
  const auto claim = enrollment_->claim_of(*issued);
  ASSERT_TRUE(claim.ok() && claim->has_value());
  EXPECT_EQ((*claim)->node, "n1");
  EXPECT_NEAR(static_cast<double>((*claim)->expires_at), static_cast<double>(unix_now() + 24 * 3'600), 60);
  EXPECT_FALSE(enrollment_->refusal("n1", *claim).has_value());
  EXPECT_TRUE(enrollment_->refusal("n1", std::nullopt).has_value());
  EXPECT_TRUE(enrollment_->refusal("n2", *claim).has_value());
}

TEST_F(NodeEnrollments, ATokenIsUsedUpForItsKey) {
  const std::string token = token_for("n1"), key = sign::make_node_key();
  ASSERT_TRUE(join("n1", token, request_of(key)).ok());
  const NodeEnrollment::Issued again = join("n1", token, request_of(key));  // The answer was lost.
  EXPECT_TRUE(again.ok());
  EXPECT_FALSE(join("n1", token, request_of(sign::make_node_key())).ok());
  EXPECT_FALSE(enrollment_->refusal("n1", **enrollment_->claim_of(*again)).has_value());
}

TEST_F(NodeEnrollments, WhatIsNoTokenAndWhatIsNoRequestGetsNothing) {
  const std::string token = token_for("n1"), request = request_of(sign::make_node_key());
  for (const std::string& wrong : {std::string(), std::string("gsn_x"), sign::make_node_token().text,
                                   token.substr(0, token.size() - 1) + (token.back() == '0' ? "1" : "0")})
    EXPECT_EQ(join("n1", wrong, request).error().kind, ErrorKind::kNodeTokenInvalid) << wrong;
  EXPECT_EQ(join("n2", token, request).error().kind, ErrorKind::kNodeTokenInvalid);
  EXPECT_EQ(join("n1", token, "no request").error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(join("n1", token, request).ok());  // None of that used it up.
}

TEST_F(NodeEnrollments, WhatIsShownIsACertificateOfTheAuthorityOrRefused) {
  const auto nothing = enrollment_->claim_of("");
  EXPECT_TRUE(nothing.ok() && !nothing->has_value());
  EXPECT_EQ(enrollment_->claim_of("what else").error().kind, ErrorKind::kUnauthenticated);
  const auto other = sign::Authority::open(folder_ + "/other");
  const auto request = sign::NodeRequest::read(request_of(sign::make_node_key()));
  EXPECT_FALSE(enrollment_
                   ->claim_of(other->issue_node(*request,
                                                {.node = "n1", .identity = 1, .expires_at = unix_now() + 60}))
                   .ok());
}

TEST_F(NodeEnrollments, ARenewalIsForWhoeverIsLetInAndForANewKey) {
  const sign::NodeClaim claim = joined("n1");
  const NodeEnrollment::Issued next = renew(claim, request_of(sign::make_node_key()));
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ((*enrollment_->claim_of(*next))->identity, claim.identity);
  EXPECT_FALSE(renew(claim, "no request").ok());
  const sign::NodeClaim newer = joined("n1");
  EXPECT_FALSE(renew(claim, request_of(sign::make_node_key())).ok());  // Its identity is not the node's.
  EXPECT_TRUE(renew(newer, request_of(sign::make_node_key())).ok());
}

TEST_F(NodeEnrollments, RevocationEndsStreamsAndRenewals) {
  const sign::NodeClaim claim = joined("n1");
  std::promise<ErrorKind> ended;
  const auto place =
      enrollment_->let_in("n1", claim, [&ended](const ApiError& why) { ended.set_value(why.kind); });
  ASSERT_TRUE(place.ok());
  propose(RevokeNode{.node = "n1", .by = "ana"});
  EXPECT_EQ(ended.get_future().get(), ErrorKind::kNodeRevoked);
  EXPECT_FALSE(renew(claim, request_of(sign::make_node_key())).ok());
  EXPECT_TRUE(enrollment_->refusal("n1", claim).has_value());
  // An enrollment that is opened later, as after a restart, knows it from the start.
  EXPECT_EQ(make_desk()->refusal("n1", claim)->kind, ErrorKind::kNodeRevoked);
}

TEST_F(NodeEnrollments, WhereCertificatesAreRequiredNobodyIsANodeWithoutOne) {
  const sign::NodeClaim claim = joined("n1");
  const auto strict = make_desk(true);
  EXPECT_TRUE(strict->refusal("n2", std::nullopt).has_value());
  EXPECT_FALSE(strict->refusal("n1", claim).has_value());
}

TEST_F(NodeEnrollments, WithoutAnAuthorityNobodyGetsACertificate) {
  const NodeEnrollment plain(*host_, {});
  std::promise<NodeEnrollment::Issued> done;
  plain.join("n1", token_for("n1"), request_of(sign::make_node_key()),
             [&done](NodeEnrollment::Issued issued) { done.set_value(std::move(issued)); });
  EXPECT_EQ(done.get_future().get().error().kind, ErrorKind::kUnprocessable);
  EXPECT_FALSE((*plain.claim_of("whatever")).has_value());
  EXPECT_FALSE(plain.refusal("n1", std::nullopt).has_value());
}

}  // namespace
}  // namespace gpusched::api
