// Tokens of a provider of identities at the doors: over REST, gRPC and the metrics' port.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "api/testing/doors_test.h"
#include "gpusched/v1/scheduler.grpc.pb.h"
#include "sign/testing/test_token.h"

namespace gpusched::api {
namespace {

constexpr const char* kIssuer = "https://idp.example";

std::shared_ptr<const sign::JwtKeySet> keys_of(const sign::TestTokenKey& key) {
  auto parsed = sign::JwtKeySet::parse(key.set(), {});
  EXPECT_TRUE(parsed.ok());
  return *parsed;
}

std::shared_ptr<const JwtTrust> trust_in(JwtRules rules) {
  return std::make_shared<const JwtTrust>(JwtTrust{
      .expected = {.issuer = kIssuer, .audience = "gpus", .leeway_seconds = 1}, .rules = std::move(rules)});
}

JwtRules usual_rules() {
  const auto rule = [](std::string group, std::string tenant, Role role,
                       std::vector<std::string> users = {}) {
    return JwtRule{.claim = {"groups"},
                   .value = std::move(group),
                   .tenant = std::move(tenant),
                   .role = role,
                   .unix_users = std::move(users)};
  };
  return {
      .rules = {rule("ml-users", "ml", Role::kUser), rule("ml-admins", "ml", Role::kTenantAdmin, {"batch"}),
                rule("ops", "", Role::kOperator), rule("watchers", "", Role::kMetrics),
                rule("everywhere", "*", Role::kViewer), rule("of-child", "child", Role::kUser)},
      .unix_user_claim = {"preferred_username"}};
}

ServerOptions options_with_tokens() {
  auto verifier = std::make_shared<TokenVerifier>();
  verifier->use(trust_in(usual_rules()));
  verifier->use_keys(keys_of(sign::test_provider_key()));
  ServerOptions options{.token = "the-right-token"};
  options.tokens = std::move(verifier);
  return options;
}

class Tokens : public DoorsTest {
 protected:
  Tokens() : Tokens(options_with_tokens()) {}

  static std::string claims(const std::string& subject, const std::string& groups,
                            const std::string& more = "", int64_t from_now = 600) {
    return R"({"iss":")" + std::string(kIssuer) + R"(","aud":"gpus","sub":")" + subject + R"(","exp":)" +
           std::to_string(std::time(nullptr) + from_now) + R"(,"groups":[")" + groups + "\"]" + more + "}";
  }
  static std::string token(const std::string& subject, const std::string& groups,
                           const std::string& more = "", int64_t from_now = 600) {
    return sign::test_provider_key().token(claims(subject, groups, more, from_now));
  }
  Reply as(const std::string& credential, const std::string& method, const std::string& target,
           const std::string& body = "", uint16_t port = 0) {
    return http(method, target, body,
                "Authorization: Bearer " + credential + "\r\nContent-Type: application/json\r\n", port);
  }
  Reply as_admin(const std::string& method, const std::string& target, const std::string& body = "") {
    return as("the-right-token", method, target, body);
  }
  std::string tenant(const std::string& name, const std::string& parent = "") {
    const Reply reply = as_admin(
        "POST", "/v1/tenants",
        R"({"name":")" + name + R"(")" + (parent.empty() ? "" : R"(,"parent_id":")" + parent + "\"") + "}");
    EXPECT_EQ(reply.status, 201) << reply.body;
    return field(reply.body, "tenant_id");
  }
  Reply submit_as(const std::string& credential, const std::string& tenant, const std::string& more = "") {
    return as(credential, "POST", "/v1/jobs",
              R"({"tenant_id":")" + tenant + R"(","spec":{"command":["true"])" + more + "}}");
  }
  static std::string job_of(const Reply& reply) {
    const std::size_t at = reply.body.find("job-");
    return at == std::string::npos ? "" : reply.body.substr(at, reply.body.find('"', at) - at);
  }
  void expect_refused(const Reply& reply, int status, const std::string& code, const std::string& what = "") {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(field(reply.body, "code"), code) << reply.body;
    EXPECT_NE(reply.body.find(what), std::string::npos) << reply.body;
  }

  const std::shared_ptr<TokenVerifier> verifier_;

 private:
  explicit Tokens(const ServerOptions& options) : DoorsTest(options), verifier_(options.tokens) {
    use_newest_rules();
  }
};

TEST_F(Tokens, AHolderIsAPersonWithItsRolesAndItsOwnJobs) {
  const std::string ml = tenant("ml"), other = tenant("other");
  const std::string ana = token("ana", "ml-users"), bob = token("bob", "ml-users");
  const Reply submitted = submit_as(ana, ml);
  ASSERT_EQ(submitted.status, 201) << submitted.body;
  const std::string job = job_of(submitted);
  EXPECT_EQ(field(as(ana, "GET", "/v1/jobs/" + job).body, "owner"), "person jwt:https://idp.example#ana");
  // Another token of the same person is that person, and without a tenant's name it means its own.
  const std::string again = token("ana", "ml-users", R"(,"jti":"2")");
  EXPECT_EQ(field(as(again, "GET", "/v1/jobs/" + job_of(submit_as(again, ""))).body, "tenant_id"), ml);
  expect_refused(as(bob, "POST", "/v1/jobs/" + job + "/cancel"), 403, "permission_denied");
  expect_refused(submit_as(ana, other), 404, "tenant_not_found");
  expect_refused(submit_as(ana, "default"), 404, "tenant_not_found");
  expect_refused(as(ana, "POST", "/v1/nodes/n1/drain"), 403, "permission_denied");
  EXPECT_EQ(as(again, "POST", "/v1/jobs/" + job + "/cancel").status, 200);
  EXPECT_EQ(as(token("boss", "ml-admins"), "GET", "/api/v1/jobs/" + job).status, 200);
}

TEST_F(Tokens, AreTakenOverGrpcAndForMetrics) {
  tenant("ml");
  const auto list = [&](const std::string& credential) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + credential);
    v1::ListJobsResponse response;
    const auto stub = v1::Scheduler::NewStub(channel_);
    return stub->ListJobs(&context, {}, &response);
  };
  EXPECT_TRUE(list(token("ana", "ml-users")).ok());
  EXPECT_EQ(list(token("ana", "nothing")).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const grpc::Status expired = list(token("ana", "ml-users", "", -10));
  EXPECT_EQ(expired.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_NE(expired.error_message().find("it expired"), std::string::npos) << expired.error_message();
  const std::string right = token("ana", "ml-users");
  EXPECT_EQ(list(right.substr(0, right.size() - 4) + "AAAA").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const auto metrics = [&](const std::string& credential) {
    return as(credential, "GET", "/metrics", "", server_->metrics_port()).status;
  };
  EXPECT_EQ(metrics(token("prometheus", "watchers")), 200);
  EXPECT_EQ(metrics(token("ana", "ml-users")), 403);
  EXPECT_EQ(metrics("x.y.z"), 401);
}

TEST_F(Tokens, StrangersGetOneSentenceAndHoldersTheReason) {
  tenant("ml");
  const std::string stranger = as("zxqv", "GET", "/v1/jobs").body;
  const std::string right = token("ana", "ml-users");
  const sign::TestTokenKey other(sign::JwtAlgorithm::kEs256), unknown(sign::JwtAlgorithm::kEs256, "k2");
  const std::string good = claims("ana", "ml-users");
  for (const std::string& credential :
       {right + "x", right.substr(1), right.substr(0, right.rfind('.') + 1), right + ".", other.token(good),
        unknown.token(good), other.token(claims("ana", "ml-users", "", -100)),
        sign::test_provider_key().token(R"({"alg":"none","kid":"k1"})", good), std::string("a.b.c"),
        std::string(".."), std::string(9'000, 'a') + ".b.c"}) {
    const Reply reply = as(credential, "GET", "/v1/jobs");
    EXPECT_EQ(reply.status, 401) << credential.substr(0, 80);
    EXPECT_EQ(reply.body, stranger) << credential.substr(0, 80);
    EXPECT_EQ(as(credential, "GET", "/api/v1/jobs").status, 401);
  }
  expect_refused(as(token("ana", "ml-users", "", -10), "GET", "/v1/jobs"), 401, "unauthenticated",
                 "it expired 10 s ago");
  expect_refused(
      as(sign::test_provider_key().token(R"({"iss":"https://idp.example","aud":"mail"})"), "GET", "/v1/jobs"),
      401, "unauthenticated", "another audience");
  expect_refused(as(token("ana", "nothing"), "GET", "/v1/jobs"), 403, "permission_denied",
                 "no role for this token");
  expect_refused(as(token(std::string(250, 'a'), "ml-users"), "GET", "/v1/jobs"), 401, "unauthenticated",
                 "too long");
  // A megabyte does not come that far.
  const Reply huge = as(right + std::string(1 << 20, 'A'), "GET", "/v1/jobs");
  EXPECT_TRUE(huge.status == 431 || huge.status == 0) << huge.status;
}

TEST_F(Tokens, OfAClosedDoorAreNobodys) {
  tenant("ml");
  const std::string right = token("ana", "ml-users");
  ASSERT_EQ(as(right, "GET", "/v1/jobs").status, 200);
  verifier_->use_keys(nullptr);
  expect_refused(as(right, "GET", "/v1/jobs"), 503, "unavailable", "no keys of the provider");
  verifier_->use(nullptr);
  EXPECT_EQ(as(right, "GET", "/v1/jobs").body, as("zxqv", "GET", "/v1/jobs").body);
}

TEST_F(Tokens, OfAKeyThatIsGoneAreNobodysFromTheNextCallOn) {
  tenant("ml");
  const std::string before = token("ana", "ml-users");
  ASSERT_EQ(as(before, "GET", "/v1/jobs").status, 200);
  const sign::TestTokenKey fresh(sign::JwtAlgorithm::kEdDsa, "k2");
  std::atomic<int> asked{0};
  verifier_->on_unknown_key([&asked] { ++asked; });
  const std::string after = fresh.token(claims("ana", "ml-users"));
  EXPECT_EQ(as(after, "GET", "/v1/jobs").status, 401);
  EXPECT_EQ(asked, 1);
  verifier_->use_keys(keys_of(fresh));
  EXPECT_EQ(as(after, "GET", "/v1/jobs").status, 200);
  EXPECT_EQ(as(before, "GET", "/v1/jobs").status, 401);
}

TEST_F(Tokens, ARuleHoldsFromTheNextCallOn) {
  const std::string ml = tenant("ml");
  const std::string ana = token("ana", "ml-users");
  ASSERT_EQ(submit_as(ana, ml).status, 201);
  JwtRules rules = usual_rules();
  rules.rules[0].role = Role::kViewer;
  verifier_->use(trust_in(rules));
  expect_refused(submit_as(ana, ml), 403, "permission_denied");
  rules.revoked = {{.subject = "ana", .id = {}, .issued_before = 0}};
  verifier_->use(trust_in(rules));
  expect_refused(as(ana, "GET", "/v1/jobs"), 401, "unauthenticated", "it was revoked");
  EXPECT_EQ(as(token("anna", "ml-users"), "GET", "/v1/jobs").status, 200);
}

TEST_F(Tokens, AreRevokedByIdByHolderAndByAge) {
  tenant("ml");
  JwtRules rules = usual_rules();
  rules.revoked = {{.subject = {}, .id = "t-1", .issued_before = 0},
                   {.subject = "bob", .id = {}, .issued_before = 2'000}};
  verifier_->use(trust_in(rules));
  const auto status_of = [&](const std::string& subject, const std::string& more) {
    return as(token(subject, "ml-users", more), "GET", "/v1/jobs").status;
  };
  EXPECT_EQ(status_of("ana", R"(,"jti":"t-1")"), 401);
  EXPECT_EQ(status_of("ana", R"(,"jti":"t-2")"), 200);
  EXPECT_EQ(status_of("bob", R"(,"iat":1999)"), 401);
  EXPECT_EQ(status_of("bob", R"(,"iat":2000)"), 200);
  EXPECT_EQ(status_of("bob", ""), 401);
  EXPECT_EQ(status_of("ana", R"(,"iat":1)"), 200);
}

TEST_F(Tokens, RunAsTheirOwnUnixUsersAlone) {
  const std::string ml = tenant("ml");
  const auto user_of = [&](const std::string& credential) {
    const Reply submitted = submit_as(credential, ml);
    EXPECT_EQ(submitted.status, 201) << submitted.body;
    return field(as_admin("GET", "/v1/jobs/" + job_of(submitted)).body, "user");
  };
  const auto named = [](const std::string& name) { return R"(,"preferred_username":)" + name; };
  EXPECT_EQ(user_of(token("ana", "ml-users", named("\"ana\""))), "ana");
  // A name that is no safe one gives no user; the node's default user remains, which is never root.
  for (const char* name :
       {"\"root\"", "\"0\"", "\"1000\"", "\"00\"", "\"+0\"", "\"Ana\"", "\"a b\"", "\"-a\"", "\"a/b\"",
        "\"*\"", "\"\"", "\"root\\u0000\"", "0", "[\"ana\"]", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""}) {
    const std::string credential = token("ana", "ml-users", named(name));
    EXPECT_EQ(user_of(credential), "") << name;
    for (const char* user : {"root", "0", "ana", "nobody"})
      expect_refused(submit_as(credential, ml, R"(,"user":")" + std::string(user) + "\""), 403,
                     "permission_denied", "its Unix users: none");
  }
  EXPECT_EQ(submit_as(token("boss", "ml-admins"), ml, R"(,"user":"batch")").status, 201);
  expect_refused(submit_as(token("boss", "ml-admins"), ml, R"(,"user":"ana")"), 403, "permission_denied");
}

TEST_F(Tokens, ATenantsNameMeansTheOneAtTheTopThatAdminsMade) {
  const std::string ana = token("ana", "ml-users"), of_child = token("eve", "of-child");
  const std::string other = tenant("other");
  const std::string below = tenant("ml", other);
  tenant("child", other);
  // Below another tenant its admin may call one as he likes: that is not the one that the rule means.
  expect_refused(as(ana, "GET", "/v1/jobs"), 403, "permission_denied", "no role for this token");
  expect_refused(as(of_child, "GET", "/v1/jobs"), 403, "permission_denied", "no role for this token");
  JwtRules rules = usual_rules();
  rules.rules[0].tenant = below;
  verifier_->use(trust_in(rules));
  EXPECT_EQ(submit_as(ana, below).status, 201);
  expect_refused(submit_as(ana, other), 404, "tenant_not_found");
  rules.rules[0].tenant = "other";
  verifier_->use(trust_in(rules));
  EXPECT_EQ(submit_as(ana, other).status, 201);
  rules.rules[0].tenant = "tenant-999";
  verifier_->use(trust_in(rules));
  expect_refused(as(ana, "GET", "/v1/jobs"), 403, "permission_denied", "no role for this token");
}

TEST_F(Tokens, ATenantThatIsMadeAnewGetsItsHoldersByNameAndNotById) {
  const std::string first = tenant("ml");
  const std::string ana = token("ana", "ml-users");
  JwtRules by_id = usual_rules();
  by_id.rules[1].tenant = first;
  verifier_->use(trust_in(by_id));
  const std::string boss = token("boss", "ml-admins");
  ASSERT_EQ(as(ana, "GET", "/v1/jobs").status, 200);
  ASSERT_EQ(as(boss, "GET", "/v1/jobs").status, 200);
  ASSERT_EQ(as_admin("DELETE", "/v1/tenants/" + first).status / 100, 2);
  expect_refused(as(ana, "GET", "/v1/jobs"), 403, "permission_denied");
  expect_refused(as(boss, "GET", "/v1/jobs"), 403, "permission_denied");
  const std::string second = tenant("ml");
  ASSERT_NE(first, second);
  EXPECT_EQ(submit_as(ana, second).status, 201);
  expect_refused(as(boss, "GET", "/v1/jobs"), 403, "permission_denied");
}

TEST_F(Tokens, ATenantOfACallerWithoutACredentialIsNoRules) {
  const Reply made = http("POST", "/v1/tenants", R"({"name":"ml"})", "Content-Type: application/json\r\n");
  ASSERT_EQ(made.status, 201) << made.body;
  expect_refused(as(token("ana", "ml-users"), "GET", "/v1/jobs"), 403, "permission_denied",
                 "no role for this token");
}

TEST_F(Tokens, RolesOfTheClusterAndOfAllTenantsAreGiven) {
  const std::string ml = tenant("ml");
  const std::string job = job_of(submit_as(token("ana", "ml-users"), ml));
  EXPECT_EQ(as(token("eve", "everywhere"), "GET", "/v1/jobs/" + job).status, 200);
  expect_refused(submit_as(token("eve", "everywhere"), ml), 403, "permission_denied");
  EXPECT_EQ(as(token("op", "ops"), "POST", "/v1/jobs/" + job + "/hold").status, 200);
  // Two groups, both roles.
  EXPECT_EQ(submit_as(token("op", "ops\",\"ml-users"), ml).status, 201);
}

TEST_F(Tokens, NoMoreAreRememberedThanThereIsRoomFor) {
  tenant("ml");
  for (std::size_t i = 0; i < TokenVerifier::kRememberedMax + 500; ++i) {
    const auto holder = verifier_->holder_of(token("u" + std::to_string(i), "ml-users"));
    ASSERT_TRUE(holder.ok()) << holder.error().message;
    ASSERT_EQ((*holder)->name, "jwt:https://idp.example#u" + std::to_string(i));
  }
}

TEST_F(Tokens, OneThatIsRememberedEndsInTime) {
  tenant("ml");
  const std::string brief = token("ana", "ml-users", "", 0);  // With the leeway it lives for a second more.
  int status = as(brief, "GET", "/v1/jobs").status;
  while (status == 200) status = as(brief, "GET", "/v1/jobs").status;
  EXPECT_EQ(status, 401);
}

TEST_F(Tokens, WhatIsOpenUnderOneEndsWhenItExpires) {
  tenant("ml");
  std::string told;
  do {  // A watch opened right behind the new tenant is ended for that.
    told = as(token("ana", "ml-users", "", 2), "GET", "/v1/watch").body;
  } while (told.find("was changed; ask again") != std::string::npos);
  EXPECT_NE(told.find("event: error\ndata: {\"error\":\"the token with which this was opened has expired"),
            std::string::npos)
      << told;
}

TEST_F(Tokens, WhatIsOpenEndsWhenTheRulesChangeAndNotWhenTheyAreReadAgain) {
  tenant("ml");
  const Answer<CallerPtr> ana = verifier_->holder_of(token("ana", "ml-users"));
  ASSERT_TRUE(ana.ok());
  verifier_->end_expired();  // The new tenant's endings are behind us.
  int ends = 0;
  const auto open = verifier_->while_valid(*ana, [&ends](const ApiError& error) {
    EXPECT_EQ(error.kind, ErrorKind::kUnauthenticated);
    ends += 1;
  });
  ASSERT_TRUE(open.ok());
  verifier_->use(trust_in(usual_rules()));
  verifier_->use_keys(keys_of(sign::test_provider_key()));
  verifier_->end_expired();
  EXPECT_EQ(ends, 0);
  JwtRules rules = usual_rules();
  rules.revoked = {{.subject = "ana", .id = {}, .issued_before = 0}};
  verifier_->use(trust_in(rules));
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace gpusched::api
