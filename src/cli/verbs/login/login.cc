// Logging in at a provider of identities, and out.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/framework/context.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/signal_watch.h"
#include "cli/terminal/text.h"
#include "client/login/device_wait.h"
#include "client/login/id_token.h"
#include "client/login/login_file.h"
#include "client/login/loopback_answer.h"

namespace gpusched::cli {
namespace {

using login::Login;
using login::Provider;
using login::TokenAnswer;

constexpr Duration kBrowserPatience = minutes(5);
constexpr Duration kLockPatience = seconds(40);
constexpr int kSignalBase = 128;

struct LoginOptions {
  std::string issuer, client_id, issuer_ca_file, token;
  std::vector<std::string> scopes;
  bool browser = false;
  bool no_open = false;
};

int64_t now_seconds(const CliIo& io) { return io.wall_now().ns / seconds(1).ns; }

/// Says what went wrong with a login, as an exit code too.
int fail_login(const Session& session, const Error& error) {
  switch (error.code) {
    case ErrorCode::kPermissionDenied:
      return session.fail(kExitRefused, error.message, "login_denied");
    case ErrorCode::kUnauthenticated:
      return session.fail(kExitRefused, error.message, "login_refused");
    case ErrorCode::kTimeout:
      return session.fail(kExitWaitedInVain, error.message, "login_expired");
    case ErrorCode::kInvalidArgument:
      return session.fail(kExitUsage, error.message, "usage");
    case ErrorCode::kUnavailable:
      return session.fail(kExitUnreachable, error.message, "provider_unavailable");
    default:
      return session.fail(kExitUnexpected, error.message, "io");
  }
}

/// A token is sent to nobody who could not be told from another.
std::optional<std::string> problem_of_url(const std::string& url) {
  for (const std::string& one : split_urls(url)) {
    if (login::is_private(one)) continue;
    return "the scheduler at " + one +
           " is reached without TLS, so that tokens could be read on the way; give its https URL with "
           "--api-url";
  }
  return std::nullopt;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

/// Fills in what the scheduler says and the command line does not. The trouble: it says nothing.
std::optional<Trouble> complete(Session& session, const LoginOptions& options, Login& login) {
  login.issuer = options.issuer;
  login.client_id = options.client_id;
  login.scopes = joined(options.scopes);
  std::string token = options.token;
  const Reply reply = session.get("/v1/login");
  const bool is_old = reply.trouble && reply.trouble->exit_code == kExitRefused;
  const bool knows_all = !login.issuer.empty() && !login.client_id.empty();
  if (!reply && !is_old && !knows_all) return reply.trouble;
  for (const Json& one : reply.json["issuers"].items()) {
    if (!login.issuer.empty() && one["issuer"].text() != login.issuer) continue;
    login.issuer = one["issuer"].text();
    if (login.client_id.empty()) login.client_id = one["client_id"].text();
    std::vector<std::string> scopes;
    for (const Json& scope : one["scopes"].items()) scopes.push_back(scope.text());
    if (login.scopes.empty()) login.scopes = joined(scopes);
    if (token.empty()) token = one["token"].text();
    break;
  }
  if (login.issuer.empty() || login.client_id.empty())
    return Trouble{.exit_code = kExitUsage,
                   .sentence =
                       "the scheduler does not say where people log in; give --issuer and --client-id, "
                       "or have an operator set `login:` in the file of api.jwt_rules_file",
                   .code = "usage"};
  if (login.scopes.empty()) login.scopes = "openid";
  login.sends_access_token = token == "access";
  return std::nullopt;
}

/// Opens a page in the person's browser, if there is one. Nobody waits for it.
void open_page(const CliIo& io, const std::string& url) {
  if (!url.starts_with("https://") && !url.starts_with("http://")) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::string program = "xdg-open";
  std::string page = url;
  char* const arguments[] = {program.data(), page.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, "xdg-open", &actions, &attributes, arguments, environ) != 0)
    io.err("gpu-cli: no browser could be opened from here; open the page yourself\n");
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
}

Result<TokenAnswer> by_device(const CliIo& io, const Provider& provider, const Login& login) {
  const Result<login::DeviceGrant> grant = provider.begin_device(login.client_id, login.scopes);
  if (!grant) return grant.error();
  io.err("Open this page in any browser, and enter the code " + printable(grant->user_code) + "\n  " +
         printable(grant->verification_uri) + "\n");
  if (!grant->verification_uri_complete.empty())
    io.err("or open this one, and check that it shows the same code\n  " +
           printable(grant->verification_uri_complete) + "\n");
  login::DeviceWait wait(*grant, io.wall_now());
  while (const std::optional<Duration> pause = wait.pause(io.wall_now())) {
    io.pause(*pause);
    Result<TokenAnswer> answer =
        provider.ask_token({{"grant_type", "urn:ietf:params:oauth:grant-type:device_code"},
                            {"device_code", grant->device_code},
                            {"client_id", login.client_id}});
    if (answer && answer->error.empty()) return answer;
    if (std::optional<Error> problem = wait.problem(answer)) return *problem;
  }
  return login::device_code_expired();
}

Result<TokenAnswer> by_browser(const CliIo& io, const Provider& provider, const Login& login, bool opens,
                               std::string& nonce) {
  const std::string& page = provider.endpoints().authorization;
  if (page.empty())
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the provider " + login.issuer +
                            " has no authorization_endpoint; log in without --browser"};
  Result<login::LoopbackAnswer> receiver = login::LoopbackAnswer::open();
  if (!receiver) return receiver.error();
  const std::string state = login::random_word();
  const std::string verifier = login::random_word();
  nonce = login::random_word();
  const std::string url = page + (page.find('?') == std::string::npos ? "?" : "&") +
                          login::form_text({{"response_type", "code"},
                                            {"client_id", login.client_id},
                                            {"redirect_uri", receiver->redirect_uri()},
                                            {"scope", login.scopes},
                                            {"state", state},
                                            {"nonce", nonce},
                                            {"code_challenge", login::code_challenge(verifier)},
                                            {"code_challenge_method", "S256"}});
  io.err("Log in on this page, in a browser on this machine\n  " + printable(url) + "\n");
  if (opens) open_page(io, url);
  const Result<login::Form> answer = receiver->wait(kBrowserPatience);
  if (!answer) return answer.error();
  const Result<std::string> code = login::code_of(*answer, state, login.issuer);
  if (!code) return code.error();
  Result<TokenAnswer> tokens = provider.ask_token({{"grant_type", "authorization_code"},
                                                   {"code", *code},
                                                   {"redirect_uri", receiver->redirect_uri()},
                                                   {"client_id", login.client_id},
                                                   {"code_verifier", verifier}});
  if (tokens && !tokens->error.empty())
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = "the provider refuses the login: " + tokens->error +
                            (tokens->reason.empty() ? "" : " (" + tokens->reason + ")")};
  return tokens;
}

bool asks_for_id_token(const Login& login) {
  return (" " + login.scopes + " ").find(" openid ") != std::string::npos;
}

/// From the provider's document to tokens in `login`.
Result<Unit> get_tokens(const CliIo& io, const LoginOptions& options, Login& login) {
  const Result<Provider> provider = Provider::discover(login.issuer, login.ca_file);
  if (!provider) return provider.error();
  std::string nonce;
  const Result<TokenAnswer> answer = options.browser
                                         ? by_browser(io, *provider, login, !options.no_open, nonce)
                                         : by_device(io, *provider, login);
  if (!answer) return answer.error();
  const int64_t now = now_seconds(io);
  if (!answer->id_token.empty() || asks_for_id_token(login)) {
    const Result<login::TokenClaims> claims =
        login::check_id_token(answer->id_token, login.issuer, login.client_id, nonce, now);
    if (!claims) return claims.error();
    login.subject = claims->subject;
  }
  return login::take_tokens(login, *answer, now);
}

/// Asks the scheduler who the token stands for. The trouble: it does not take it.
std::optional<Trouble> try_token(const Session& session, const Login& login, Json& person) {
  HttpClientOptions client_options{.token = login.token(), .ca_file = session.options().ca_file};
  set_urls(client_options, login.api_url);
  Result<HttpClient> client = HttpClient::create(std::move(client_options));
  CHECK(client.ok());  // The session accepted the URL.
  const Result<HttpAnswer> answer = client->request({.method = "GET",
                                                     .target = "/v1/whoami",
                                                     .timeout = session.options().call_timeout,
                                                     .repeatable = true});
  const Result<Json> json = answer ? Json::parse(answer->body) : Result<Json>(answer.error());
  if (answer && json && answer->status == 200) {
    person = *json;
    return std::nullopt;
  }
  // Without an answer about the token it may be as good as any.
  if (!answer || answer->status / 100 == 5 || answer->status == 404 || answer->status == 429)
    return std::nullopt;
  const std::string why = json ? (*json)["error"].text() : "";
  return Trouble{.exit_code = kExitRefused,
                 .sentence = "the provider gave a token, and the scheduler refuses it: " +
                             (why.empty() ? "HTTP status " + std::to_string(answer->status) : why) +
                             "; nothing is kept",
                 .code = json ? (*json)["code"].text() : "bad_answer"};
}

int keep(const Session& session, const std::string& folder, const Login& login, const Json& person) {
  const Result<login::LoginLock> lock = login::LoginLock::take(folder, kLockPatience);
  if (!lock) return fail_login(session, lock.error());
  const Result<Unit> saved = login::save_login(folder, login);
  if (!saved) return fail_login(session, saved.error());
  if (const std::string& file = session.options().token_file; !file.empty())
    session.io().err("gpu-cli: commands still send what is in " + printable(file) +
                     ", which goes before the login; take it out of the context or the environment\n");
  const std::string name = person["name"].text().empty() ? login.subject : person["name"].text();
  if (session.options().json) {
    JsonObjectWriter out;
    out.add("api_url", login.api_url);
    out.add("issuer", login.issuer);
    out.add("name", name);
    session.io().out(out.text() + "\n");
    return kExitOk;
  }
  session.io().out("logged in to " + login.api_url + (name.empty() ? "" : " as " + printable(name)) + "\n");
  if (login.refresh_token.empty())
    session.io().err("gpu-cli: the provider gives no refresh token: the login ends with its token\n");
  return kExitOk;
}

std::unique_ptr<SignalWatch> watch_interrupts(const Session& session) {
  return std::make_unique<SignalWatch>(std::initializer_list<int>{SIGINT, SIGTERM},
                                       [err = session.io().err](int signal) {
                                         err("\ngpu-cli: the login was interrupted; nothing is kept\n");
                                         ::_exit(kSignalBase + signal);
                                       });
}

int log_in(Session& session, const LoginOptions& options) {
  const std::string folder = logins_path(session.io());
  if (folder.empty())
    return session.fail(kExitUsage, "logins are kept in the home directory, and HOME is not set; set it",
                        "usage");
  Login login{.api_url = session.url(), .ca_file = options.issuer_ca_file};
  if (const auto problem = problem_of_url(login.api_url)) return session.fail(kExitUsage, *problem, "usage");
  if (session.io().check_receiver) {
    const Result<Unit> may =
        session.io().check_receiver(login.api_url, login::login_file(folder, login.api_url));
    if (!may) return session.fail(kExitUsage, may.error().message, "usage");
  }
  if (const std::optional<Trouble> trouble = complete(session, options, login)) return session.fail(*trouble);
  const std::unique_ptr<SignalWatch> interrupts = watch_interrupts(session);
  session.io().err("Logging in at " + printable(login.issuer) + " for the scheduler at " + login.api_url +
                   "\n");
  const Result<Unit> got = get_tokens(session.io(), options, login);
  if (!got) return fail_login(session, got.error());
  Json person;
  if (const std::optional<Trouble> trouble = try_token(session, login, person)) return session.fail(*trouble);
  return keep(session, folder, login, person);
}

/// Ends the login at the provider; a sentence when that did not work.
std::optional<std::string> revoke(const Login& login) {
  const Result<Provider> provider = Provider::discover(login.issuer, login.ca_file);
  if (!provider) return provider.error().message;
  const bool refreshes = !login.refresh_token.empty();
  const Result<Unit> revoked =
      provider->revoke(login.client_id, refreshes ? login.refresh_token : login.access_token,
                       refreshes ? "refresh_token" : "access_token");
  if (!revoked) return revoked.error().message;
  return std::nullopt;
}

int log_out(Session& session) {
  const std::string folder = logins_path(session.io());
  const std::string& url = session.url();
  const Result<login::LoginLock> lock =
      folder.empty() ? Error{.code = ErrorCode::kInvalidArgument,
                             .message = "logins are kept in the home directory, and HOME is not set; set it"}
                     : login::LoginLock::take(folder, kLockPatience);
  if (!lock) return fail_login(session, lock.error());
  const Result<std::optional<Login>> login = login::load_login(folder, url);
  if (login && !login->has_value()) {
    session.io().out("nobody is logged in to " + url + "\n");
    return kExitOk;
  }
  // The file goes first: a provider that hangs keeps nobody logged in here.
  if (const Result<Unit> removed = login::remove_login(folder, url); !removed)
    return fail_login(session, removed.error());
  if (const auto problem = login ? revoke(**login) : std::optional(login.error().message))
    session.io().err("gpu-cli: the provider was not told, so that its tokens live on until they expire: " +
                     printable(*problem) + "\n");
  session.io().out("logged out of " + url + "\n");
  return kExitOk;
}

}  // namespace

Action define_login(Grammar& grammar) {
  const auto options = std::make_shared<LoginOptions>();
  grammar.option("--issuer", "URL", &options->issuer, "Provider's issuer (default: what the scheduler says)");
  grammar.option("--client-id", "ID", &options->client_id,
                 "Id of gpu-cli at the provider, of a public client (default: what the scheduler says)");
  grammar.option("--scope", "SCOPE", &options->scopes,
                 "Scope to ask for; may be repeated (default: what the scheduler says, else openid)");
  grammar
      .option("--token", "KIND", &options->token,
              "Token that is sent to the scheduler: id or access (default: what the scheduler says, else id)")
      .of({"id", "access"});
  grammar
      .option(
          "--issuer-ca-file", "FILE", &options->issuer_ca_file,
          "File with the certificates (PEM) that the provider's https is checked against, instead of this "
          "machine's authorities")
      .completes(Complete::kFile);
  grammar.flag("--browser", options->browser,
               "Log in with a browser on this machine, without a code to enter");
  grammar.flag("--no-open", options->no_open, "With --browser: print the page's URL, and open nothing");
  grammar.details(
      "Prints a page and a code; log in on that page, in a browser on any machine. From then on commands for "
      "this scheduler send the token of the login, unless a token file is given, and exchange it before it "
      "expires. The tokens are kept in a folder beside the contexts, in a file that only you can read.");
  grammar.example("gpu-cli login", "log in where the scheduler says");
  grammar.example("gpu-cli login --browser", "log in with a browser on this machine");
  return [options](Session& session) { return log_in(session, *options); };
}

Action define_logout(Grammar& grammar) {
  grammar.details(
      "Removes the tokens of the login for this scheduler, and has the provider revoke them where it can.");
  return [](Session& session) { return log_out(session); };
}

}  // namespace gpusched::cli
