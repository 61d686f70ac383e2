#include "main/tokens/jwt_rules.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace gpusched {
namespace {

std::string problem(const std::string& text) {
  const Result<api::JwtRules> rules = parse_jwt_rules("r.yaml", text);
  return rules.ok() ? "" : rules.error().message;
}

TEST(JwtRules, AreReadAsTheyAreWritten) {
  const Result<api::JwtRules> rules = parse_jwt_rules("r.yaml", R"(
rules:
  - {claim: groups, value: ml-admins, tenant: ml, role: tenant_admin, unix_users: [batch, "*"]}
  - claim: [realm_access, roles]
    value: gpu
    tenant: "*"
    role: viewer
  - {claim: groups, value: ops, role: operator}
unix_user_claim: preferred_username
revoked:
  - sub: bob
  - jti: t-1
  - {sub: eve, issued_before: 2026-01-31T09:00:00Z}
  - issued_before: 2026-01-31T09:00:01Z
)");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  ASSERT_EQ(rules->rules.size(), 3U);
  EXPECT_EQ(rules->rules[0].claim, std::vector<std::string>{"groups"});
  EXPECT_EQ(rules->rules[0].value, "ml-admins");
  EXPECT_EQ(rules->rules[0].tenant, "ml");
  EXPECT_EQ(rules->rules[0].role, Role::kTenantAdmin);
  EXPECT_EQ(rules->rules[0].unix_users, (std::vector<std::string>{"batch", "*"}));
  EXPECT_EQ(rules->rules[1].claim, (std::vector<std::string>{"realm_access", "roles"}));
  EXPECT_EQ(rules->rules[2].tenant, "");
  EXPECT_EQ(rules->unix_user_claim, std::vector<std::string>{"preferred_username"});
  ASSERT_EQ(rules->revoked.size(), 4U);
  EXPECT_EQ(rules->revoked[0].subject, "bob");
  EXPECT_EQ(rules->revoked[1].id, "t-1");
  EXPECT_EQ(rules->revoked[2].issued_before, 1'769'850'000);
  EXPECT_EQ(rules->revoked[3].issued_before, 1'769'850'001);
}

TEST(JwtRules, AreRefusedWithTheLineOfEachProblem) {
  const std::string text = problem(
      "rules:\n"
      "  - {claim: groups, value: a, tenant: ml, role: king}\n"
      "  - {claim: groups, value: a, role: user}\n"
      "  - {claim: groups, value: a, tenant: ml, role: operator}\n"
      "  - {claim: groups, value: a, role: node}\n"
      "  - {claim: [], value: a, tenant: ml, role: user}\n"
      "  - {claim: groups, tenant: ml, role: user}\n"
      "  - {claim: groups, value: a, tenant: ml, role: user, unix_users: [root]}\n"
      "  - {claim: groups, value: a, tenant: ml, role: user, unix_users: [\"0\"]}\n"
      "  - {claim: groups, value: a, tenant: ml, role: user, who: x}\n"
      "  - {value: a, tenant: ml, role: user}\n"
      "revoked:\n"
      "  - {}\n"
      "  - issued_before: yesterday\n"
      "  - issued_before: 2026-02-30T09:00:00Z\n"
      "more: 1\n");
  for (const char* part :
       {"r.yaml:2: there is no role king", "r.yaml:3: the role user needs a `tenant:`",
        "r.yaml:4: the role operator is for", "r.yaml:5: the role node is given to nobody",
        "r.yaml:6: a claim is", "r.yaml:7: it needs a `value:`", "r.yaml:8: a Unix user is",
        "r.yaml:9: a Unix user is", "r.yaml:10: a rule has no key who", "r.yaml:11: a rule needs a `claim:`",
        "r.yaml:13: a revocation needs", "r.yaml:14: issued_before is no time",
        "r.yaml:15: issued_before is no time", "r.yaml:16: the file has no key more"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  for (const char* bad : {"", "rules: []", "rules: 1", "[]", "rules:\n\t- x", "{", "unix_user_claim: a"})
    EXPECT_NE(problem(bad), "") << bad;
  EXPECT_NE(problem("rules: [{claim: a, claim: b, value: a, tenant: ml, role: user}]").find("twice"),
            std::string::npos);
}

TEST(JwtRules, SayHowPeopleLogIn) {
  const std::string rule = "rules: [{claim: a, value: a, tenant: ml, role: user}]\n";
  const auto login = [&](const std::string& text) { return parse_jwt_rules("r.yaml", rule + text)->login; };
  EXPECT_EQ(login("").client_id, "");
  EXPECT_EQ(login("login: {client_id: gpu-cli}"), api::JwtLogin{.client_id = "gpu-cli"});
  EXPECT_EQ(login("login: {client_id: gpu-cli, scopes: [openid, offline_access], token: access}"),
            (api::JwtLogin{.client_id = "gpu-cli",
                           .scopes = {"openid", "offline_access"},
                           .token = api::JwtLogin::Token::kAccess}));
  EXPECT_EQ(login("login: {client_id: gpu-cli, token: id}").token, api::JwtLogin::Token::kId);
  for (const char* bad : {"login: x", "login: {}", "login: {client_id: ''}",
                          "login: {client_id: a, token: both}", "login: {client_id: a, scopes: ['a b']}",
                          "login: {client_id: a, scopes: openid}", "login: {client_id: a, secret: b}"})
    EXPECT_NE(problem(rule + bad), "") << bad;
}

TEST(JwtRules, SayHowPeopleSignInWithABrowser) {
  const std::string rule = "rules: [{claim: a, value: a, tenant: ml, role: user}]\n";
  const std::string url = "https://gpu.example.com:8080/login/callback";
  const auto browser = [&](const std::string& text) {
    return parse_jwt_rules("r.yaml", rule + "login: {client_id: gpu-cli, browser: {" + text + "}}")->browser;
  };
  EXPECT_EQ(parse_jwt_rules("r.yaml", rule + "login: {client_id: gpu-cli}")->browser, api::BrowserLogin{});
  EXPECT_EQ(browser("redirect_url: '" + url + "'"),
            (api::BrowserLogin{.redirect_url = url, .client_id = "gpu-cli"}));
  EXPECT_EQ(browser("redirect_url: '" + url + "', client_id: page, client_secret_file: /etc/s"),
            (api::BrowserLogin{.redirect_url = url, .client_id = "page", .secret_file = "/etc/s"}));
  for (const char* bad : {"x", "{}", "{redirect_url: 'http://gpu.example.com/login/callback'}",
                          "{redirect_url: 'https://gpu.example.com/'}",
                          "{redirect_url: 'https://g/login/callback', client_secret: a}",
                          "{redirect_url: 'https://g/login/callback', client_secret_file: a}"})
    EXPECT_NE(problem(rule + "login: {client_id: a, browser: " + bad + "}"), "") << bad;
}

TEST(JwtRules, TakeASecretOnlyFromAFileThatNobodyElseReads) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpusched_rules_XXXXXX").string();
  CHECK(::mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/rules.yaml", secret = folder + "/secret";
  std::ofstream(path)
      << "rules: [{claim: a, value: a, tenant: ml, role: user}]\nlogin: {client_id: a, browser: "
      << "{redirect_url: 'https://g/login/callback', client_secret_file: '" << secret << "'}}\n";
  ::chmod(path.c_str(), 0644);
  EXPECT_EQ(load_jwt_rules(path).error().code, ErrorCode::kNotFound);
  std::ofstream(secret) << "of the client\n";
  ::chmod(secret.c_str(), 0640);
  EXPECT_EQ(load_jwt_rules(path).error().code, ErrorCode::kPermissionDenied);
  ::chmod(secret.c_str(), 0600);
  EXPECT_EQ(load_jwt_rules(path)->browser.client_secret, "of the client");
  std::ofstream(secret) << "two\nlines\n";
  EXPECT_EQ(load_jwt_rules(path).error().code, ErrorCode::kInvalidArgument);
  std::filesystem::remove_all(folder);
}

TEST(JwtRules, OfAFileThatOthersMayWriteAreRefused) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpusched_rules_XXXXXX").string();
  CHECK(::mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/rules.yaml";
  EXPECT_EQ(load_jwt_rules(path).error().code, ErrorCode::kNotFound);
  std::ofstream(path) << "rules: [{claim: a, value: a, tenant: ml, role: user}]\n";
  ::chmod(path.c_str(), 0644);
  EXPECT_TRUE(load_jwt_rules(path).ok());
  ::chmod(path.c_str(), 0666);
  EXPECT_EQ(load_jwt_rules(path).error().code, ErrorCode::kPermissionDenied);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gpusched
