// Where people log in, told to everybody; and who a caller is.
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "api/testing/doors_test.h"
#include "sign/testing/test_token.h"

namespace gpusched::api {
namespace {

std::shared_ptr<const JwtTrust> trust_with(JwtLogin login, const std::string& audience = "gpus") {
  return std::make_shared<const JwtTrust>(JwtTrust{
      .expected = {.issuer = "https://idp.example", .audience = audience},
      .rules = {.rules = {{.claim = {"groups"}, .value = "ops", .tenant = "", .role = Role::kOperator}},
                .login = std::move(login)}});
}

ServerOptions strict_options() {
  ServerOptions options{.token = "the-right-token", .token_required = true};
  options.tokens = std::make_shared<TokenVerifier>();
  options.tokens->use_keys(*sign::JwtKeySet::parse(sign::test_provider_key().set(), {}));
  options.tokens->use(trust_with({.client_id = "gpu-cli", .scopes = {"openid", "groups"}}));
  return options;
}

class Logins : public DoorsTest {
 protected:
  Logins() : Logins(strict_options()) {}
  const std::shared_ptr<TokenVerifier> verifier_;

 private:
  explicit Logins(const ServerOptions& options) : DoorsTest(options), verifier_(options.tokens) {}
};

TEST_F(Logins, ThePlaceIsToldToEverybodyAndNothingElseIs) {
  const std::string whole =
      R"({"issuers":[{"issuer":"https://idp.example","client_id":"gpu-cli","scopes":["openid","groups"],)"
      R"("token":"access"}]})";
  const Reply plain = http("GET", "/v1/login");
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(plain.body, whole);
  // A wrong credential is not looked at, and another name of the host tells nobody more.
  EXPECT_EQ(http("GET", "/v1/login", "", "Authorization: Bearer wrong\r\n").body, whole);
  EXPECT_EQ(http("HEAD", "/v1/login").status, 200);
  EXPECT_EQ(http("POST", "/v1/login", "{}").status, 401);
  EXPECT_EQ(http("GET", "/v1/login/").status, 401);
  EXPECT_EQ(http("GET", "/v1/jobs").status, 401);
  EXPECT_EQ(http("GET", "/v1/whoami").status, 401);
}

TEST_F(Logins, TheIdTokenIsSentWhereTheAudienceIsTheClientAndElseWhatTheFileSays) {
  verifier_->use(trust_with({.client_id = "gpus"}));
  EXPECT_NE(http("GET", "/v1/login").body.find(R"("token":"id")"), std::string::npos);
  verifier_->use(trust_with({.client_id = "gpus", .token = JwtLogin::Token::kAccess}));
  EXPECT_NE(http("GET", "/v1/login").body.find(R"("token":"access")"), std::string::npos);
  verifier_->use(trust_with({.client_id = "other", .token = JwtLogin::Token::kId}));
  EXPECT_NE(http("GET", "/v1/login").body.find(R"("token":"id")"), std::string::npos);
  verifier_->use(trust_with({}));
  EXPECT_EQ(http("GET", "/v1/login").body, R"({"issuers":[]})");
  verifier_->use(nullptr);
  EXPECT_EQ(http("GET", "/v1/login").body, R"({"issuers":[]})");
}

TEST_F(Logins, ACallerIsToldWhoItIsAndWhatItMay) {
  const std::string ends = std::to_string(std::time(nullptr) + 600);
  const std::string token = sign::test_provider_key().token(
      R"({"iss":"https://idp.example","aud":"gpus","sub":"ana","groups":["ops"],"exp":)" + ends + "}");
  const Reply ana = http("GET", "/v1/whoami", "", "Authorization: Bearer " + token + "\r\n");
  EXPECT_EQ(ana.status, 200) << ana.body;
  EXPECT_EQ(field(ana.body, "kind"), "person");
  EXPECT_EQ(field(ana.body, "name"), "jwt:https://idp.example#ana");
  EXPECT_NE(ana.body.find(R"("roles":[{"role":"operator","tenant_id":""}])"), std::string::npos) << ana.body;
  EXPECT_NE(ana.body.find("\"expires_at\":\"2"), std::string::npos) << ana.body;
  EXPECT_EQ(ana.body.find(token.substr(0, 20)), std::string::npos);
  const Reply shared = http("GET", "/v1/whoami", "", "Authorization: Bearer the-right-token\r\n");
  EXPECT_EQ(field(shared.body, "kind"), "operator");
  EXPECT_EQ(shared.body.find("expires_at"), std::string::npos);
  EXPECT_EQ(http("GET", "/v1/whoami", "", "Authorization: Bearer wrong\r\n").status, 401);
}

}  // namespace
}  // namespace gpusched::api
