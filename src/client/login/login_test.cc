#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/net/base64url.h"
#include "client/http_client.h"
#include "client/login/device_wait.h"
#include "client/login/id_token.h"
#include "client/login/login_file.h"
#include "client/login/loopback_answer.h"
#include "client/login/provider.h"
#include "client/test_server.h"

namespace gpusched::login {
namespace {

constexpr Time kStart{1'000'000'000'000};

Result<TokenAnswer> said(const std::string& error) { return TokenAnswer{.error = error}; }

TEST(DeviceWait, AsksAgainUntilTheCodeExpires) {
  DeviceWait wait({.lives = seconds(12), .interval = seconds(5)}, kStart);
  EXPECT_EQ(wait.pause(kStart), seconds(5));
  EXPECT_EQ(wait.problem(said("authorization_pending")), std::nullopt);
  EXPECT_EQ(wait.pause(kStart + seconds(5)), seconds(5));
  EXPECT_EQ(wait.problem(said("slow_down")), std::nullopt);
  EXPECT_EQ(wait.pause(kStart + seconds(1)), seconds(10));
  EXPECT_EQ(wait.pause(kStart + seconds(10)), seconds(2));  // Not beyond its end.
  EXPECT_EQ(wait.pause(kStart + seconds(12)), std::nullopt);
}

TEST(DeviceWait, AsksAProviderThatIsAwayLessAndLessOften) {
  DeviceWait wait({.lives = minutes(30), .interval = seconds(5)}, kStart);
  const Result<TokenAnswer> away = Error{.code = ErrorCode::kUnavailable};
  EXPECT_EQ(wait.problem(away), std::nullopt);
  EXPECT_EQ(wait.pause(kStart), seconds(10));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(wait.problem(away), std::nullopt);
  EXPECT_EQ(wait.pause(kStart), minutes(1));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(wait.problem(said("slow_down")), std::nullopt);
  EXPECT_EQ(wait.pause(kStart), minutes(1));
}

TEST(DeviceWait, EndsWithWhatCannotChange) {
  DeviceWait wait({}, kStart);
  const auto code = [&](const Result<TokenAnswer>& answer) { return wait.problem(answer)->code; };
  EXPECT_EQ(code(said("expired_token")), ErrorCode::kTimeout);
  EXPECT_EQ(code(said("access_denied")), ErrorCode::kPermissionDenied);
  EXPECT_EQ(code(said("invalid_client")), ErrorCode::kUnauthenticated);
  EXPECT_EQ(code(Error{.code = ErrorCode::kUnauthenticated}), ErrorCode::kUnauthenticated);
}

TEST(Forms, AreWrittenAndReadBack) {
  const Form form{{"a", "x y&z=ü"}, {"b", ""}};
  EXPECT_EQ(form_text(form), "a=x%20y%26z%3D%C3%BC&b=");
  EXPECT_EQ(*parse_form(form_text(form)), form);
  EXPECT_EQ(*parse_form("a=1+2&&b"), (Form{{"a", "1 2"}, {"b", ""}}));
  for (const char* bad : {"a=%", "a=%4", "a=%zz"}) EXPECT_FALSE(parse_form(bad).ok()) << bad;
  std::string many;
  for (int i = 0; i < 40; ++i) many += "a=1&";
  EXPECT_FALSE(parse_form(many).ok());
}

TEST(Issuers, AreReachedOverHttpsOrOnThisMachine) {
  for (const char* good : {"https://login.example.com", "https://login.example.com/realms/x",
                           "http://127.0.0.1:8080", "http://localhost:1/x", "http://[::1]:1"})
    EXPECT_TRUE(check_issuer(good).ok()) << good;
  for (const char* bad :
       {"", "login", "http://login.example.com", "ftp://x", "https://", "https://a b", "https://x#y",
        "https://x?y", "https://u@x", "https://x\n", "unix:///x", "http://127.0.0.1.example.com"})
    EXPECT_FALSE(check_issuer(bad).ok()) << bad;
}

TEST(LoopbackAnswers, AreTakenWithTheStateThatWasSent) {
  const auto code = [](const Form& form) { return code_of(form, "s", "https://i"); };
  EXPECT_EQ(*code({{"code", "c"}, {"state", "s"}}), "c");
  EXPECT_EQ(*code({{"code", "c"}, {"state", "s"}, {"iss", "https://i"}}), "c");
  for (const Form& bad :
       {Form{}, Form{{"code", "c"}}, Form{{"code", "c"}, {"state", "t"}},
        Form{{"code", "c"}, {"state", "s"}, {"state", "s"}}, Form{{"state", "s"}},
        Form{{"code", ""}, {"state", "s"}}, Form{{"code", "c"}, {"state", "s"}, {"iss", "https://j"}},
        Form{{"code", "c"}, {"code", "d"}, {"state", "s"}}})
    EXPECT_EQ(code(bad).error().code, ErrorCode::kUnauthenticated) << form_text(bad);
  EXPECT_EQ(code({{"error", "access_denied"}, {"state", "s"}}).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(code({{"error", "x\x1b[2J"}, {"state", "s"}}).error().message.find('\x1b'), std::string::npos);
}

TEST(LoopbackAnswers, ComeToOnePathAndOnce) {
  Result<LoopbackAnswer> receiver = LoopbackAnswer::open();
  ASSERT_TRUE(receiver.ok());
  const std::string uri = receiver->redirect_uri();
  const std::string origin = uri.substr(0, uri.rfind('/'));
  std::thread browser([&] {
    HttpClient client = std::move(*HttpClient::create({.url = origin}));
    const auto get = [&](const std::string& target) {
      return client.request({.method = "GET", .target = target});
    };
    EXPECT_EQ(get("/favicon.ico")->status, 404);
    EXPECT_EQ(get("/callbacks?code=c")->status, 404);
    EXPECT_EQ(client.request({.method = "POST", .target = "/callback?code=c"})->status, 404);
    EXPECT_FALSE(get("/" + std::string(20'000, 'x')).ok());
    EXPECT_EQ(get("/callback?code=c&state=s")->status, 200);
  });
  const Result<Form> answer = receiver->wait(seconds(30));
  browser.join();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(*answer, (Form{{"code", "c"}, {"state", "s"}}));
  EXPECT_EQ(receiver->wait(milliseconds(1)).error().code, ErrorCode::kTimeout);
}

std::string token_of(const std::string& claims) { return "e30." + base64url_encoded(claims) + ".c2ln"; }

TEST(IdTokens, AreThisLogins) {
  const std::string good = R"({"iss":"https://i","aud":"c","sub":"ana","exp":2000,"iat":1000,"nonce":"n"})";
  const Result<TokenClaims> claims = check_id_token(token_of(good), "https://i", "c", "n", 1'500);
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->subject, "ana");
  const auto refused = [](const std::string& token, const std::string& nonce = "n", int64_t now = 1'500) {
    return !check_id_token(token, "https://i", "c", nonce, now).ok();
  };
  EXPECT_FALSE(refused(token_of(good), "", 2'299));
  EXPECT_TRUE(refused(token_of(good), "m"));
  EXPECT_TRUE(refused(token_of(good), "n", 2'300));
  EXPECT_TRUE(refused(token_of(R"({"iss":"https://j","aud":"c","sub":"ana","exp":2000,"nonce":"n"})")));
  EXPECT_TRUE(refused(token_of(R"({"iss":"https://i","aud":["d"],"sub":"ana","exp":2000,"nonce":"n"})")));
  EXPECT_TRUE(refused(
      token_of(R"({"iss":"https://i","aud":["c","d"],"azp":"d","sub":"ana","exp":2000,"nonce":"n"})")));
  EXPECT_FALSE(refused(
      token_of(R"({"iss":"https://i","aud":["c","d"],"azp":"c","sub":"ana","exp":2000,"nonce":"n"})")));
  EXPECT_TRUE(refused(token_of(R"({"iss":"https://i","aud":"c","exp":2000,"nonce":"n"})")));
  for (const char* bad : {"", ".", "..", "a.b", "e30.!!.x", "e30.W10.x"}) EXPECT_TRUE(refused(bad)) << bad;
  EXPECT_NE(random_word(), random_word());
  // RFC 7636, appendix B.
  EXPECT_EQ(code_challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

TEST(Logins, LiveAsLongAsTheTokenThatIsSent) {
  Login login;
  EXPECT_FALSE(take_tokens(login, {.access_token = "a"}, 1'000).ok());  // The id token is missing.
  // Its own clock is another one: how long it lives counts.
  const std::string id = token_of(R"({"sub":"ana","iat":500000,"exp":500400})");
  ASSERT_TRUE(
      take_tokens(login, {.access_token = "a", .id_token = id, .refresh_token = "r", .expires_in = 9}, 1'000)
          .ok());
  EXPECT_EQ(login.expires_at, 1'400);
  EXPECT_EQ(login.renew_at, 1'340);
  login.sends_access_token = true;
  ASSERT_TRUE(take_tokens(login, {.access_token = "b", .expires_in = 40}, 1'000).ok());
  EXPECT_EQ(login.expires_at, 1'040);
  EXPECT_EQ(login.renew_at, 1'030);
  EXPECT_EQ(login.refresh_token, "r");
  EXPECT_EQ(login.token(), "b");
}

TEST(LoginFile, IsNamedByTheSha256OfTheUrl) {
  EXPECT_EQ(login_file("/f", "https://a"), "/f/44f833239a3830c06cd05a0469cc989d.json");
}

TEST(Logins, AreKeptWholeForOneSchedulerAndOneOwner) {
  std::string root = (std::filesystem::temp_directory_path() / "gpusched_login_XXXXXX").string();
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const std::string folder = root + "/deep/logins";
  const Login login{.api_url = "https://a",
                    .issuer = "https://i",
                    .client_id = "c",
                    .id_token = "t",
                    .refresh_token = "r",
                    .expires_at = 2'000,
                    .renew_at = 1'900};
  ASSERT_TRUE(save_login(folder, login).ok());
  EXPECT_EQ((*load_login(folder, "https://a"))->refresh_token, "r");
  EXPECT_FALSE(load_login(folder, "https://b")->has_value());
  EXPECT_EQ((*current_credential(folder, "https://a", 1'000))->token, "t");
  struct stat facts{};
  ASSERT_EQ(::stat(login_file(folder, "https://a").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  // A login of another scheduler is not sent.
  std::filesystem::copy_file(login_file(folder, "https://a"), login_file(folder, "https://b"));
  EXPECT_FALSE(load_login(folder, "https://b").ok());
  ASSERT_EQ(::chmod(login_file(folder, "https://a").c_str(), 0640), 0);
  EXPECT_EQ(load_login(folder, "https://a").error().code, ErrorCode::kPermissionDenied);
  ASSERT_TRUE(remove_login(folder, "https://a").ok());
  std::filesystem::create_symlink(login_file(folder, "https://b"), login_file(folder, "https://a"));
  EXPECT_FALSE(load_login(folder, "https://a").ok());
  {
    const Result<LoginLock> held = LoginLock::take(folder, seconds(1));
    ASSERT_TRUE(held.ok());
    EXPECT_EQ(LoginLock::take(folder, milliseconds(30)).error().code, ErrorCode::kLocked);
  }
  EXPECT_TRUE(LoginLock::take(folder, {}).ok());
  std::filesystem::remove_all(root);
}

TEST(Providers, AnswersAreTakenWithinBounds) {
  std::string body;
  int status = 200;
  std::string issuer;
  TestServer server([&](const TestServer::Request& request) -> TestServer::Reply {
    if (request.target == "/.well-known/openid-configuration")
      return {.body = R"({"issuer":")" + issuer + R"(","token_endpoint":")" + issuer +
                      R"(/t?p=1","device_authorization_endpoint":")" + issuer + R"(/d"})"};
    return {.status = status, .body = body};
  });
  issuer = server.url();
  const Result<Provider> provider = Provider::discover(issuer, "");
  ASSERT_TRUE(provider.ok()) << provider.error().message;
  body =
      R"({"device_code":"d","user_code":"U","verification_uri":"https://v","expires_in":999999999,"interval":"7"})";
  const Result<DeviceGrant> grant = provider->begin_device("c", "openid");
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(grant->lives, minutes(30));
  EXPECT_EQ(grant->interval, seconds(7));
  const auto token = [&] { return provider->ask_token({{"grant_type", "x"}}); };
  body = R"({"access_token":"a","expires_in":"60"})";
  EXPECT_EQ(token()->expires_in, 60);
  EXPECT_EQ(server.requests().back().target, "/t?p=1");
  EXPECT_EQ(server.requests().back().headers.at("content-type"), "application/x-www-form-urlencoded");
  for (const std::string& bad :
       {std::string("{}"), std::string("[]"), std::string(R"({"access_token":"a b"})"),
        R"({"access_token":")" + std::string(9'000, 'a') + "\"}"}) {
    body = bad;
    EXPECT_FALSE(token().ok()) << bad.substr(0, 60);
  }
  status = 400;
  body = R"({"error":"invalid_grant","error_description":"no\u001b[2J"})";
  EXPECT_EQ(token()->error, "invalid_grant");
  EXPECT_EQ(token()->reason, "no?[2J");
  status = 500;
  EXPECT_FALSE(token().ok());
}

}  // namespace
}  // namespace gpusched::login
