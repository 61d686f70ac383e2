// People sign in with a browser: what an attacker may try with states, codes, tokens and cookies.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <map>
#include <mutex>

#include "api/backend/tokens/sign_in_flow.h"
#include "api/doors/sign_in/sign_in_pages.h"
#include "api/http/cookies.h"
#include "api/testing/doors_test.h"
#include "sign/testing/test_token.h"

namespace gpusched::api {
namespace {

constexpr const char* kIssuer = "https://idp.example";
constexpr const char* kOwn = "Origin: http://localhost\r\n";

const sign::TestTokenKey& provider_key() {
  static const sign::TestTokenKey kKey(sign::JwtAlgorithm::kEs256);
  return kKey;
}

/// Answers as a provider would, and does wrong what it is told to.
class FakeProvider final : public SignInProvider {
 public:
  Result<std::string> page_for(const std::string& state, const std::string& its_nonce,
                               const std::string& verifier) override {
    const std::lock_guard lock(mutex_);
    pages += 1;
    begun_[verifier] = its_nonce;
    return "https://idp.example/authorize?state=" + state;
  }
  Result<std::string> id_token_for(const std::string&, const std::string& verifier, bool named) override {
    const std::lock_guard lock(mutex_);
    exchanges += 1;
    if (must_name && !named)
      return Error{.code = ErrorCode::kUnauthenticated, .message = "it names no issuer"};
    if (fails) return Error{.code = ErrorCode::kUnavailable, .message = why};
    const auto found = begun_.find(verifier);
    if (found == begun_.end())
      return Error{.code = ErrorCode::kUnauthenticated, .message = "another verifier"};
    const std::string ends = std::to_string(std::time(nullptr) + lives);
    const std::string claims = R"({"iss":")" + issuer + R"(","aud":)" + audience + R"(,"sub":")" + subject +
                               R"(","groups":["ml"],"nonce":")" + (nonce.empty() ? found->second : nonce) +
                               R"(","exp":)" + ends + more + "}";
    return given = (stranger != nullptr ? *stranger : provider_key()).token(claims);
  }

  std::string issuer = kIssuer, audience = R"("page")", subject = "ana", nonce, more;
  std::string given;  ///< The last token.
  std::string why = "it is <b>away</b>";
  int64_t lives = 600;
  bool must_name = false, fails = false;
  const sign::TestTokenKey* stranger = nullptr;
  int pages = 0, exchanges = 0;

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> begun_;
};

std::shared_ptr<const JwtTrust> trust(std::vector<JwtRevocation> revoked = {}, std::string value = "ml") {
  return std::make_shared<const JwtTrust>(JwtTrust{
      .expected = {.issuer = kIssuer, .audience = "gpus"},
      .rules = {
          .rules = {{.claim = {"groups"}, .value = std::move(value), .tenant = "ml", .role = Role::kUser}},
          .revoked = std::move(revoked)}});
}

struct Parts {
  std::shared_ptr<FakeProvider> provider = std::make_shared<FakeProvider>();
  std::shared_ptr<TokenVerifier> tokens = std::make_shared<TokenVerifier>();
  std::shared_ptr<SignInFlow> flow = std::make_shared<SignInFlow>(tokens);
  std::string folder;
  std::unique_ptr<audit::AuditLog> audit;

  Parts() {
    char pattern[] = "/tmp/gpusched-sign-in-XXXXXX";
    folder = mkdtemp(pattern);
    audit = std::move(*audit::AuditLog::open({.path = folder + "/audit.log"}));
    tokens->use_keys(*sign::JwtKeySet::parse(provider_key().set(), {}));
    tokens->use(trust());
    use("http://localhost/login/callback");
  }
  ~Parts() { std::filesystem::remove_all(folder); }

  void use(const std::string& url) {
    flow->use(std::make_shared<const BrowserSignIn>(BrowserSignIn{.place = *browser_place_of(url),
                                                                  .issuer = kIssuer,
                                                                  .client_id = "page",
                                                                  .redirect_url = url,
                                                                  .provider = provider}));
  }
  std::string audit_text() const {
    audit->flush();
    std::ifstream in(folder + "/audit.log");
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

class SignIns : protected Parts, public DoorsTest {
 protected:
  SignIns() : DoorsTest(options(*this)) {
    const Reply made = http("POST", "/v1/tenants", R"({"name":"ml"})", kToken);
    EXPECT_LT(made.status, 300) << made.body;
  }
  static ServerOptions options(Parts& parts) {
    ServerOptions options{.token = "the-right-token", .token_required = true};
    options.tokens = parts.tokens;
    options.sign_in = parts.flow;
    options.audit = parts.audit.get();
    return options;
  }
  static constexpr const char* kToken = "Authorization: Bearer the-right-token\r\n";

  static std::string cookie_in(const std::string& head, const std::string& name) {
    const std::size_t at = head.find("Set-Cookie: " + name + "=");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + 13 + name.size();
    return head.substr(begin, head.find(';', begin) - begin);
  }
  struct Begun {
    std::string cookie, state;
  };
  Begun begin() {
    const Reply reply = http("GET", "/login");
    EXPECT_EQ(reply.status, 303) << reply.body;
    const std::size_t at = reply.head.find("state=");
    EXPECT_NE(at, std::string::npos) << reply.head;
    return {.cookie = cookie_in(reply.head, "gpu-sign-in"),
            .state = reply.head.substr(at + 6, reply.head.find('\r', at) - at - 6)};
  }
  Reply finish(const std::string& cookie, const std::string& query, const std::string& more = "") {
    return http("GET", "/login/callback?" + query, "", "Cookie: gpu-sign-in=" + cookie + "\r\n" + more);
  }
  Reply finish(const Begun& begun, const std::string& more = "") {
    return finish(begun.cookie, "code=c&state=" + begun.state + more);
  }
  std::string sign_in() {
    const Reply reply = finish(begin());
    EXPECT_EQ(reply.status, 200) << reply.body;
    const std::string session = cookie_in(reply.head, "gpu-session");
    EXPECT_EQ(session.size(), 43U);
    return session;
  }
  static std::string with(const std::string& session) { return "Cookie: gpu-session=" + session + "\r\n"; }
  int whoami(const std::string& headers) { return http("GET", "/v1/whoami", "", headers).status; }
};

TEST_F(SignIns, APersonSignsInIsSomebodyAndSignsOut) {
  const Reply start = http("GET", "/login");
  EXPECT_NE(start.head.find("Location: https://idp.example/authorize?"), std::string::npos);
  EXPECT_NE(start.head.find("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600"), std::string::npos)
      << start.head;
  const Reply done = finish(begin());
  EXPECT_NE(done.head.find("; Path=/; HttpOnly; SameSite=Strict; Max-Age="), std::string::npos) << done.head;
  EXPECT_NE(done.head.find("Set-Cookie: gpu-sign-in=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"),
            std::string::npos);
  const std::string session = cookie_in(done.head, "gpu-session");
  const Reply who = http("GET", "/v1/whoami", "", with(session));
  EXPECT_EQ(field(who.body, "name"), "jwt:https://idp.example#ana") << who.body;
  const Reply out = http("POST", "/logout", "", with(session) + kOwn);
  EXPECT_EQ(out.status, 200) << out.body;
  EXPECT_NE(out.head.find("Set-Cookie: gpu-session=; "), std::string::npos);
  EXPECT_EQ(whoami(with(session)), 401);
  EXPECT_EQ(flow->sessions(), 0U);
}

TEST_F(SignIns, AnAnswerToAnotherBrowserOrStateIsRefusedAndUsesNothingUp) {
  const Begun ana = begin(), eve = begin();
  const std::string guessed(43, 'A');
  EXPECT_EQ(finish(ana.cookie, "code=c&state=" + eve.state).status, 401);
  EXPECT_EQ(finish(ana.cookie, "code=c&state=" + guessed).status, 401);
  EXPECT_EQ(finish(ana.cookie, "code=c").status, 401);
  EXPECT_EQ(finish(ana.cookie, "code=c&state=" + ana.state + "&state=" + eve.state).status, 401);
  EXPECT_EQ(finish(guessed, "code=c&state=" + ana.state).status, 401);
  // The attacker's own answer in the victim's browser, which has no cookie of that sign-in.
  EXPECT_EQ(http("GET", "/login/callback?code=c&state=" + eve.state).status, 401);
  EXPECT_EQ(provider->exchanges, 0);
  EXPECT_EQ(flow->sessions(), 0U);
  EXPECT_EQ(finish(ana).status, 200);
}

TEST_F(SignIns, ACodeAndAStateAreTakenOnce) {
  const Begun begun = begin();
  EXPECT_EQ(finish(begun).status, 200);
  EXPECT_EQ(finish(begun).status, 401);
  EXPECT_EQ(provider->exchanges, 1);
  const Begun denied = begin();
  const Reply no = finish(denied.cookie, "error=access_denied&state=" + denied.state);
  EXPECT_EQ(no.status, 403);
  EXPECT_NE(no.body.find("was denied"), std::string::npos);
  EXPECT_EQ(finish(denied).status, 401);
  const Begun odd = begin();
  const Reply said = finish(odd.cookie, "error=%3Cscript%3E&state=" + odd.state);
  EXPECT_EQ(said.body.find("<script>"), std::string::npos);
  EXPECT_NE(said.body.find("&lt;script&gt;"), std::string::npos);
}

TEST_F(SignIns, ATokenThatIsNotRightMakesNoSession) {
  const sign::TestTokenKey stranger(sign::JwtAlgorithm::kEs256);
  const auto expect = [&](int status, const std::string& words, const std::function<void()>& wrong) {
    wrong();
    const Reply reply = finish(begin());
    EXPECT_EQ(reply.status, status) << words << ": " << reply.body;
    EXPECT_NE(reply.body.find(words), std::string::npos) << reply.body;
    EXPECT_EQ(cookie_in(reply.head, "gpu-session"), "");
    EXPECT_EQ(flow->sessions(), 0U);
    FakeProvider& all = *provider;
    all.issuer = kIssuer, all.audience = R"("page")", all.nonce = "", all.more = "", all.lives = 600;
    all.must_name = all.fails = false, all.stranger = nullptr;
  };
  expect(401, "its nonce is not the one", [&] { provider->nonce = std::string(43, 'B'); });
  expect(401, "another", [&] { provider->audience = R"("gpus")"; });  // An API's audience is not the page's.
  expect(401, "another client", [&] {
    provider->audience = R"(["page","mail"])";
    provider->more = R"(,"azp":"mail")";
  });
  expect(401, "expired", [&] { provider->lives = -120; });
  expect(401, "its issuer (iss) is not", [&] { provider->issuer = "https://other.example"; });
  expect(401, "nobody signed it", [&] { provider->stranger = &stranger; });
  expect(401, "names no issuer", [&] { provider->must_name = true; });
  expect(503, "&lt;b&gt;away", [&] { provider->fails = true; });
  tokens->use(trust({}, "others"));
  expect(403, "No role", [] {});
}

TEST_F(SignIns, AnotherProvidersAnswerIsRefused) {
  const Begun begun = begin();
  EXPECT_EQ(finish(begun, "&iss=https%3A%2F%2Fevil.example").status, 401);
  EXPECT_EQ(finish(begun).status, 401);  // It was used up.
  EXPECT_EQ(finish(begin(), "&iss=https%3A%2F%2Fidp.example&iss=https%3A%2F%2Fevil.example").status, 401);
  EXPECT_EQ(provider->exchanges, 0);
  provider->must_name = true;
  EXPECT_EQ(finish(begin(), "&iss=https%3A%2F%2Fidp.example").status, 200);
}

TEST_F(SignIns, AProvidersWordsAreShownInBoundsAndEscaped) {
  provider->fails = true;
  provider->why = "<i>\x1b[31m\r\nSet-Cookie: a=b" + std::string(10'000, 'w');
  const Reply reply = finish(begin());
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("&lt;i&gt;?[31m??Set-Cookie: a=b"), std::string::npos) << reply.body;
  EXPECT_EQ(reply.body.find(std::string(400, 'w')), std::string::npos);
  EXPECT_EQ(reply.head.find("Set-Cookie: a=b"), std::string::npos) << reply.head;
}

TEST_F(SignIns, ASessionOpensAWebSocketOfOurOwnPages) {
  const std::string session = sign_in();
  const int socket = connect_to(server_->http_port());
  const timeval patience{20, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string request =
      "GET /api/v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
      with(session) + kOwn + "\r\n";
  EXPECT_EQ(send(socket, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string said;
  const auto read_until = [&](const std::string& end) {
    char buffer[4'096];
    for (ssize_t size = 1; size > 0 && said.find(end) == std::string::npos;) {
      size = recv(socket, buffer, sizeof buffer, 0);
      if (size > 0) said.append(buffer, static_cast<std::size_t>(size));
    }
    EXPECT_NE(said.find(end), std::string::npos) << said;
  };
  read_until(R"("type":"begin")");
  EXPECT_TRUE(said.starts_with("HTTP/1.1 101")) << said;
  // Changes that the person may see are told on it, and it ends with the session.
  const Reply made = http("POST", "/api/v1/jobs", R"({"script":"true","name":"x"})", with(session) + kOwn);
  EXPECT_EQ(made.status, 201) << made.body;
  read_until(field(made.body, "job_id"));
  EXPECT_EQ(http("POST", "/logout", "", with(session) + kOwn).status, 200);
  read_until("session has ended");
  close(socket);
}

TEST(MyPage, SaysThatAListWasRefusedInsteadOfNone) {
  const access::Caller ana{.kind = access::CallerKind::kPerson, .name = "ana"};
  const std::string refused =
      me_page(ana, {}, ApiError{ErrorKind::kCallerLimit, "this <b>caller</b> has 9 calls under way"}).body;
  EXPECT_EQ(refused.find("There are none"), std::string::npos) << refused;
  EXPECT_NE(refused.find("This &lt;b&gt;caller&lt;/b&gt; has 9 calls under way."), std::string::npos)
      << refused;
  EXPECT_NE(refused.find("<code>caller_limit</code>"), std::string::npos) << refused;
  EXPECT_NE(me_page(ana, {}, JobPage{}).body.find("There are none"), std::string::npos);
}

TEST_F(SignIns, ACookieCountsForOurOwnPagesAlone) {
  const std::string session = with(sign_in());
  const std::string socket =
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  for (const char* const foreign :
       {"Origin: https://evil.example\r\n", "Origin: null\r\n", "Origin: http://localhost:81\r\n",
        "Origin: https://localhost\r\n", "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://localhost\r\nSec-Fetch-Site: cross-site\r\n"}) {
    EXPECT_EQ(http("GET", "/v1/whoami", "", session + foreign).status, 403) << foreign;
    EXPECT_EQ(http("POST", "/v1/jobs", "{}", session + foreign).status, 403) << foreign;
    EXPECT_EQ(http("GET", "/v1/jobs/job-1/attach", "", session + socket + foreign).status, 403) << foreign;
    EXPECT_EQ(http("POST", "/logout", "", session + foreign).status, 403) << foreign;
  }
  // A browser always says where a write or a WebSocket is from.
  for (const char* const silent : {"", "Sec-Fetch-Site: none\r\n"}) {
    EXPECT_EQ(http("POST", "/v1/jobs", "{}", session + silent).status, 403);
    EXPECT_EQ(http("DELETE", "/v1/jobs/job-1", "", session + silent).status, 403);
    EXPECT_EQ(http("GET", "/v1/jobs/job-1/attach", "", session + socket + silent).status, 403);
    EXPECT_EQ(http("GET", "/v1/whoami", "", session + silent).status, 200);
  }
  EXPECT_EQ(flow->sessions(), 1U);
  for (const char* const own : {kOwn, "Sec-Fetch-Site: same-origin\r\n"}) {
    const Reply made = http("POST", "/api/v1/jobs", R"({"script":"true","name":"x"})", session + own);
    EXPECT_EQ(made.status, 201) << made.body;
  }
  // Other ports are other origins, which no session opens.
  EXPECT_EQ(http("GET", "/metrics", "", session, server_->metrics_port()).status, 401);
}

TEST_F(SignIns, AHeaderGoesBeforeACookieAndAWrongOneIsRefused) {
  const std::string session = with(sign_in());
  const std::string wrong = with(std::string(43, 'A'));
  EXPECT_EQ(whoami(session + "Authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(whoami(wrong + "Authorization: Bearer wrong\r\n"), 401);
  const Reply shared = http("GET", "/v1/whoami", "", wrong + kToken);
  EXPECT_EQ(field(shared.body, "kind"), "operator") << shared.body;
  EXPECT_EQ(whoami(wrong), 401);
  EXPECT_EQ(whoami("Cookie: gpu-session=\r\n"), 401);
  // Nobody can say which of two is ours: a neighbour may have put one there.
  EXPECT_EQ(whoami("Cookie: gpu-session=" + std::string(43, 'A') + "; " + session.substr(8)), 401);
  EXPECT_EQ(whoami(session + wrong), 401);
  EXPECT_EQ(whoami("Cookie: x-gpu-session=1; theme=dark\r\n" + session), 200);
}

TEST_F(SignIns, AnIdTokenIsNoBearersWhateverStandsBeforeIt) {
  EXPECT_EQ(whoami(with(sign_in())), 200);
  const std::string token = provider->given;
  for (const std::string& text : {token, "page " + token, "page\t" + token, "page" + token})
    EXPECT_EQ(whoami("Authorization: Bearer " + text + "\r\n"), 401) << text.substr(0, 6);
}

TEST_F(SignIns, NoCacheKeepsWhatACookieGot) {
  const std::string session = with(sign_in());
  for (const char* const path : {"/v1/whoami", "/api/v1/jobs", "/me"})
    EXPECT_NE(http("GET", path, "", session).head.find("Cache-Control: no-store"), std::string::npos) << path;
  EXPECT_EQ(http("GET", "/v1/whoami", "", kToken).head.find("no-store"), std::string::npos);
}

TEST_F(SignIns, ATokenMayEndInThousandsOfYears) {
  provider->lives = 250'000'000'000;
  EXPECT_EQ(whoami(with(sign_in())), 200);
  const Answer<CallerPtr> holder = tokens->holder_of(
      provider_key().token(R"({"iss":"https://idp.example","aud":"gpus","sub":"ana","groups":["ml"],"exp":)" +
                           std::to_string(std::time(nullptr) + provider->lives) + "}"));
  ASSERT_TRUE(holder.ok());
  EXPECT_GT((*holder)->ends_at, Time{} + hours(24 * 365 * 60));
}

TEST_F(SignIns, ASessionIsNeverOneThatTheBrowserBrought) {
  const std::string planted(43, 'E');
  const Begun begun = begin();
  const Reply reply = http("GET", "/login/callback?code=c&state=" + begun.state, "",
                           "Cookie: gpu-session=" + planted + "; gpu-sign-in=" + begun.cookie + "\r\n");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(cookie_in(reply.head, "gpu-session"), planted);
  EXPECT_EQ(whoami(with(planted)), 401);
  EXPECT_EQ(whoami(with(cookie_in(reply.head, "gpu-session"))), 200);
  EXPECT_NE(sign_in(), sign_in());
}

TEST_F(SignIns, ASessionGivesWhatTheRulesGiveAndEndsWithThem) {
  const std::string session = sign_in();
  EXPECT_EQ(whoami(with(session)), 200);
  // A role may come back.
  tokens->use(trust({}, "others"));
  EXPECT_EQ(whoami(with(session)), 403);
  tokens->use(trust());
  EXPECT_EQ(whoami(with(session)), 200);
  // As with a token: keys that are not there for a while end nothing, a revocation does.
  tokens->use_keys(nullptr);
  EXPECT_EQ(whoami(with(session)), 503);
  tokens->use_keys(*sign::JwtKeySet::parse(provider_key().set(), {}));
  EXPECT_EQ(whoami(with(session)), 200);
  tokens->use(trust({{.subject = "ana"}}));
  EXPECT_EQ(whoami(with(session)), 401);
  tokens->use(trust());
  EXPECT_EQ(whoami(with(session)), 401);
  // Another key, place or nobody at all.
  const std::string next = sign_in();
  tokens->use_keys(*sign::JwtKeySet::parse(sign::TestTokenKey(sign::JwtAlgorithm::kEs256, "k2").set(), {}));
  EXPECT_EQ(whoami(with(next)), 401);
  tokens->use_keys(*sign::JwtKeySet::parse(provider_key().set(), {}));
  const std::string last = sign_in();
  use("http://localhost:81/login/callback");
  EXPECT_EQ(flow->sessions(), 0U);
  use("http://localhost/login/callback");
  EXPECT_EQ(whoami(with(last)), 401);
}

TEST_F(SignIns, ASessionEndsWithItsToken) {
  provider->lives = 3;
  const std::string session = sign_in();
  for (int i = 0; i < 2'000 && flow->sessions() > 0; ++i) usleep(10'000);
  EXPECT_EQ(flow->sessions(), 0U);
  EXPECT_EQ(whoami(with(session)), 401);
}

TEST_F(SignIns, WhatIsOpenEndsWithTheSession) {
  const std::string session = sign_in();
  const Answer<CallerPtr> caller = flow->holder_of_session(session);
  ASSERT_TRUE(caller);
  std::vector<std::string> told;
  const auto open = flow->while_valid(*caller, [&](const ApiError& why) { told.push_back(why.message); });
  ASSERT_TRUE(open);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(http("POST", "/logout", "", with(session) + kOwn).status, 200);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("session has ended"), std::string::npos);
  EXPECT_FALSE(flow->while_valid(*caller, [](const ApiError&) {}));
}

TEST_F(SignIns, NobodyMakesTheProviderWorkWithoutEnd) {
  int begun = 0, refused = 0;
  for (int i = 0; i < 40; ++i) {
    const Reply reply = http("GET", "/login");
    begun += reply.status == 303 ? 1 : 0;
    if (reply.status != 429) continue;
    refused += 1;
    EXPECT_NE(reply.head.find("Retry-After: "), std::string::npos);
    EXPECT_NE(reply.head.find("text/html"), std::string::npos);
  }
  EXPECT_GE(begun, 20);
  EXPECT_GE(refused, 1);
  EXPECT_EQ(provider->pages, begun);
  EXPECT_EQ(flow->pending(), static_cast<std::size_t>(begun));
}

TEST_F(SignIns, NoPageLeadsAnywhereElseAndNoSiteBeginsASignIn) {
  const Reply start = http("GET", "/login?return=https://evil.example&next=//evil.example");
  EXPECT_EQ((start.head + start.body).find("evil"), std::string::npos) << start.head;
  const Begun begun = begin();
  const Reply done = finish(begun, "&return=https://evil.example");
  EXPECT_NE(done.head.find("Refresh: 0; url=/me\r\n"), std::string::npos) << done.head;
  EXPECT_EQ((done.head + done.body).find("evil"), std::string::npos);
  for (const char* const site : {"cross-site", "same-site"}) {
    const Reply asked = http("GET", "/login", "", "Sec-Fetch-Site: " + std::string(site) + "\r\n");
    EXPECT_EQ(asked.status, 200);
    EXPECT_EQ(asked.head.find("Set-Cookie"), std::string::npos);
  }
  EXPECT_EQ(http("GET", "/login", "", "Host: evil.example\r\n").status, 400) << "a second Host";
}

TEST_F(SignIns, ThePageShowsWhoseItIsAndEscapesAll) {
  use_newest_rules();  // Before, jobs had no owners.
  EXPECT_EQ(http("GET", "/me", "", with(std::string(43, 'A'))).status, 401);
  // Nobody is signed out by a link of another site, with which browsers send no cookie.
  const Reply led = http("GET", "/me", "", "Sec-Fetch-Site: cross-site\r\n");
  EXPECT_EQ(led.status, 401);
  EXPECT_EQ(led.head.find("Set-Cookie"), std::string::npos) << led.head;
  provider->subject = "ana <i>";
  const std::string session = sign_in();
  const std::string job = R"({"script":"true","name":"<script>alert(1)</script>"})";
  EXPECT_EQ(http("POST", "/api/v1/jobs", job, with(session) + kOwn).status, 201);
  EXPECT_EQ(
      http("POST", "/api/v1/jobs", R"({"script":"true","name":"of-others","tenant_id":"ml"})", kToken).status,
      201);
  Reply page = http("GET", "/me", "", with(session));
  for (int i = 0; i < 2'000 && page.body.find("alert(1)") == std::string::npos; ++i) {
    usleep(10'000);
    page = http("GET", "/me", "", with(session));
  }
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body.find("<script"), std::string::npos) << page.body;
  EXPECT_NE(page.body.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos) << page.body;
  EXPECT_NE(page.body.find("jwt:https://idp.example#ana &lt;i&gt;"), std::string::npos);
  EXPECT_NE(page.body.find("<td>user</td><td>ml</td>"), std::string::npos) << page.body;
  EXPECT_EQ(page.body.find("of-others"), std::string::npos);
  EXPECT_NE(page.body.find("pending</td><td>"), std::string::npos);
  EXPECT_NE(page.body.find("<form method=\"post\" action=\"/logout\">"), std::string::npos);
  EXPECT_NE(page.head.find("Content-Security-Policy: default-src 'none'; style-src 'sha256-"),
            std::string::npos);
  EXPECT_EQ(page.head.find("unsafe"), std::string::npos);
  EXPECT_NE(page.head.find("Cache-Control: no-store"), std::string::npos);
  EXPECT_EQ(page.body.find(session), std::string::npos);
  EXPECT_NE(http("GET", "/docs", "", with(session)).body.find("Signed in as <a href=\"/me\">"),
            std::string::npos);
  EXPECT_NE(http("GET", "/docs").body.find("<a href=\"/login\">Sign in</a>"), std::string::npos);
  const Reply led_with_it = http("GET", "/me", "", with(session) + "Sec-Fetch-Site: same-site\r\n");
  EXPECT_EQ(led_with_it.status, 403);
  EXPECT_NE(led_with_it.body.find("<a href=\"/me\">Go on</a>"), std::string::npos);
  EXPECT_EQ(led_with_it.body.find("ana"), std::string::npos);
  const Reply foreign = http("GET", "/docs", "", with(session) + "Sec-Fetch-Site: cross-site\r\n");
  EXPECT_EQ(foreign.body.find("Signed in"), std::string::npos);
}

TEST_F(SignIns, WithoutASettingThereIsNothing) {
  const std::string session = sign_in();
  flow->use(nullptr);
  EXPECT_EQ(http("GET", "/login").status, 404);
  EXPECT_EQ(whoami(with(session)), 401);
  EXPECT_EQ(http("GET", "/docs").body.find("/login\""), std::string::npos);
  EXPECT_EQ(flow->sessions(), 0U);
}

TEST_F(SignIns, TheAuditKnowsWhoCameAndWentAndNoSecret) {
  const Begun begun = begin();
  const Reply done = finish(begun);
  const std::string session = cookie_in(done.head, "gpu-session");
  finish(begun);
  http("POST", "/logout", "", with(session) + kOwn);
  const std::string text = audit_text();
  const auto line_with = [&](const std::string& action, const std::string& outcome) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      if (field(line, "action") == action && field(line, "outcome") == outcome) return field(line, "caller");
    }
    return std::string("(no line)");
  };
  EXPECT_EQ(line_with("sign_in", "applied"), "jwt:https://idp.example#ana") << text;
  EXPECT_EQ(line_with("sign_in", "unauthenticated"), "") << text;
  EXPECT_NE(text.find(R"("caller_kind":"unknown")"), std::string::npos) << text;
  EXPECT_EQ(line_with("sign_out", "applied"), "jwt:https://idp.example#ana") << text;
  for (const std::string& secret :
       {begun.cookie, begun.state, session, std::string("eyJ"), std::string("code=")})
    EXPECT_EQ(text.find(secret), std::string::npos) << text;
}

TEST(Cookies, OverHttpsArePinnedToTheHost) {
  const BrowserPlace place = *browser_place_of("https://gpu.example.com:8080/login/callback");
  EXPECT_EQ(place.origin, "https://gpu.example.com:8080");
  EXPECT_EQ(session_cookie(place), "__Host-gpu-session");
  EXPECT_EQ(set_cookie(place, session_cookie(place), "v", 60, true),
            "__Host-gpu-session=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=60; Secure");
  EXPECT_EQ(browser_place_of("https://gpu.example.com:443/login/callback")->host, "gpu.example.com");
  EXPECT_EQ(browser_place_of("http://[::1]:8080/login/callback")->host, "[::1]:8080");
  for (const char* const wrong :
       {"", "gpu.example.com", "http://gpu.example.com/login/callback", "https://gpu.example.com/callback",
        "https://u@gpu.example.com/login/callback", "https://GPU.example.com/login/callback",
        "https:///login/callback", "https://gpu.example.com/login/callback?x=1",
        "javascript://x/login/callback"})
    EXPECT_FALSE(browser_place_of(wrong).ok()) << wrong;
}

TEST(PendingSignIns, AreBoundedByPartyAndInAll) {
  PendingSignIns all;
  const auto add = [&](const std::string& hash, const std::string& party) {
    all.add(hash, {.state = "s", .nonce = {}, .verifier = {}, .party = party, .ends_at = Time{100}});
  };
  for (std::size_t i = 0; i <= PendingSignIns::kOfPartyMax; ++i) add("eve" + std::to_string(i), "eve");
  EXPECT_EQ(all.size(), PendingSignIns::kOfPartyMax);
  EXPECT_EQ(all.find("eve0", Time{1}), nullptr);
  add("ana", "ana");
  for (std::size_t i = 0; all.size() < PendingSignIns::kMax; ++i) {
    add("n" + std::to_string(i), "net" + std::to_string(i / 8));
  }
  add("late", "late");
  EXPECT_EQ(all.size(), PendingSignIns::kMax);
  EXPECT_NE(all.find("ana", Time{1}), nullptr);   // An earlier one is kept.
  EXPECT_EQ(all.find("eve1", Time{1}), nullptr);  // The party with most loses one.
  EXPECT_EQ(all.find("ana", Time{100}), nullptr);
  all.sweep(Time{100});
  EXPECT_EQ(all.size(), 0U);
}

TEST(BrowserSessions, AreBoundedByPersonAndInAll) {
  BrowserSessions all;
  uint64_t number = 0;
  const auto add = [&](const std::string& subject) {
    number += 1;
    return all.add("h" + std::to_string(number),
                   {.number = number, .subject = subject, .ends_at = Time{static_cast<int64_t>(number)}});
  };
  for (std::size_t i = 0; i < BrowserSessions::kOfSubjectMax; ++i) EXPECT_TRUE(add("eve").empty());
  EXPECT_EQ(add("eve"), std::vector<uint64_t>{1});
  EXPECT_FALSE(all.is_there(1));
  while (all.size() < BrowserSessions::kMax) add("p" + std::to_string(number));
  EXPECT_EQ(add("late"), std::vector<uint64_t>{2});
  EXPECT_EQ(all.size(), BrowserSessions::kMax);
  EXPECT_EQ(all.sweep(Time{3}), std::vector<uint64_t>{3});
  EXPECT_EQ(all.clear().size(), BrowserSessions::kMax - 1);
}

}  // namespace
}  // namespace gpusched::api
