#include "cli/framework/session.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <regex>

#include "base/prng.h"
#include "cli/framework/context.h"
#include "cli/framework/field_words.h"
#include "cli/framework/tenant_names.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"
#include "client/local_token.h"
#include "client/login/login_file.h"

namespace gpusched::cli {
namespace {

constexpr std::string_view kFirstSteps =
    "\n"
    "  try it here      gpu-scheduler dev        (a scheduler and an agent on this machine)\n"
    "  use another      gpu-cli --api-url http://HOST:8080 cluster\n"
    "  remember it      gpu-cli context set lab --api-url http://HOST:8080 --token-file FILE\n"
    "  more             gpu-cli --help\n";
constexpr std::string_view kNative = "/v1/";
constexpr std::string_view kDoors = "/api/";
constexpr size_t kTokenBytesMax = 8'192;
constexpr Duration kPatienceMax = seconds(60);
constexpr Duration kPauseMax = seconds(2);
constexpr Duration kSearchPauseFirst = milliseconds(50);
constexpr Duration kSearchPauseMax = seconds(1);
constexpr Duration kSearchMax = seconds(10);  ///< Several schedulers have another leader long before.

Result<std::string> read_token(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kTokenBytesMax + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) {
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot read the token file " + path + ": " + std::strerror(errno)};
  }
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  const bool plain = std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
  if (text.empty() || text.size() > kTokenBytesMax || !plain) {
    return Error{.code = ErrorCode::kIo,
                 .message = path +
                            " holds neither an API key nor a token; it must be a file of gpu-cli key create "
                            "--out, or a copy of the scheduler's DATA_DIR/token"};
  }
  return text;
}

Trouble trouble_of(const Error& error, const std::string& url) {
  switch (error.code) {
    case ErrorCode::kUnavailable:
      return {.exit_code = kExitUnreachable,
              .sentence =
                  "no scheduler answers at " + url + ": " + error.message +
                  "; is it running (systemctl status gpu-scheduler), and is this its URL (--api-url)? To try "
                  "one out: gpu-scheduler dev",
              .code = "unreachable",
              .passing = true};
    case ErrorCode::kUnauthenticated:
      return {.exit_code = kExitUnreachable,
              .sentence = "nothing was sent to " + url + ": " + error.message,
              .code = "certificate_refused"};
    case ErrorCode::kInvalidArgument:
      return {.exit_code = kExitUsage, .sentence = url + ": " + error.message, .code = "usage"};
    case ErrorCode::kTimeout:
      return {.exit_code = kExitUnexpected,
              .sentence = "the scheduler at " + url +
                          " did not answer in time; try again, or increase --request-timeout",
              .code = "timeout",
              .passing = true};
    case ErrorCode::kOutcomeUnknown:
      return {.exit_code = kExitUnexpected,
              .sentence = error.message +
                          " before the answer arrived: the request may or may not have been carried out; "
                          "check before you repeat it",
              .code = "outcome_unknown",
              .passing = true};
    default:
      return {.exit_code = kExitUnexpected, .sentence = error.message, .code = "bad_answer"};
  }
}

/// Replaces the sentence of the jobs door, whose form its clients read, by one for people: "quota exceeded
/// for tenant vision: GPUs requested=5, quota=4, current=0" becomes "tenant vision may use 4 GPUs at once,
/// has 0, ...".
std::string quota_sentence(const std::string& sentence) {
  static const std::regex form(
      R"(quota exceeded for (.+): (.+) requested=([^,]+), quota=([^,]+), current=([^,]+))");
  std::smatch found;
  if (!std::regex_match(sentence, found, form)) return sentence;
  const std::string amount = found[4].str() + " " + found[2].str();
  const std::string in_use = found[5] == "0" ? "" : ", uses " + found[5].str() + " now,";
  return found[1].str() + " may use " + amount + " at once" + in_use + " and this job asks for " +
         found[3].str();
}

/// The trouble that a status outside 2xx means. The scheduler says it itself; something in between may not.
/// `fix`: the remedy when the credential is wrong.
Trouble refusal_of(const HttpAnswer& answer, const Json& json, const std::string& fix) {
  Trouble trouble{.exit_code = kExitRefused, .sentence = json["error"].text(), .code = json["code"].text()};
  if (trouble.sentence.empty()) {
    trouble.sentence = "the server answered with HTTP status " + std::to_string(answer.status) +
                       ", but not in the format of a scheduler; check --api-url";
    trouble.exit_code = kExitUnexpected;
  }
  if (trouble.code.empty()) trouble.code = "http_" + std::to_string(answer.status);
  if (answer.status == 401) {
    const bool says_no_more = trouble.sentence.starts_with("the credential is missing or wrong");
    trouble.sentence = says_no_more ? fix : trouble.sentence + "; " + fix;
  }
  if (trouble.code == "quota_exceeded") trouble.sentence = quota_sentence(trouble.sentence);
  trouble.throttled = answer.status == 429;
  trouble.passing =
      answer.status == 429 || answer.status == 502 || answer.status == 503 || answer.status == 504;
  return trouble;
}

/// Whether a request that had this trouble may be sent to another one of several schedulers: it did nothing,
/// or is safe to repeat.
bool may_go_elsewhere(const HttpRequest& request, const Trouble& trouble) {
  if (trouble.code == "unreachable" || trouble.code == "no_leader" || trouble.code == "shutting_down")
    return true;
  return request.repeatable && trouble.passing && !trouble.throttled && trouble.code != "storage_full" &&
         trouble.code != "timeout";
}

/// Between a half of the pause and all of it.
Duration jittered(Duration pause) {
  thread_local Prng prng([] {
    uint64_t seed = 0;
    CHECK(::getrandom(&seed, sizeof seed, 0) == sizeof seed);
    return seed;
  }());
  return {prng.between(pause.ns / 2, pause.ns)};
}

/// The trouble of a login that a call needs.
Trouble login_trouble(const Error& error) {
  if (error.code == ErrorCode::kUnauthenticated)
    return {.exit_code = kExitRefused, .sentence = error.message, .code = "login_ended"};
  if (error.code == ErrorCode::kUnavailable)
    return {.exit_code = kExitUnreachable, .sentence = error.message, .code = "unreachable", .passing = true};
  return {.exit_code = kExitUsage, .sentence = error.message, .code = "usage"};
}

/// "anna@login1", for the job's timeline; empty: who calls is not known.
std::string requester_name(const CliIo& io) {
  std::string name = io.login_name ? printable(io.login_name()) : std::string();
  char host[HOST_NAME_MAX + 1] = {};
  if (!name.empty() && ::gethostname(host, sizeof host - 1) == 0) name += "@" + printable(host);
  return name;
}

}  // namespace

Trouble about_job(const std::string& job, Trouble trouble) {
  if (trouble.exit_code == kExitRefused && trouble.sentence.find(job) == std::string::npos)
    trouble.sentence = job + ": " + trouble.sentence;
  return trouble;
}

bool colored(const Options& options, const CliIo& io) {
  if (options.color == "always") return true;
  if (options.color == "never" || !io.out_is_terminal) return false;
  return io.environment("NO_COLOR").empty() && io.environment("TERM") != "dumb";
}

void print_error(const CliIo& io, const std::string& sentence, const std::string& code) {
  io.err("gpu-cli: " + printable(with_local_times(sentence)) +
         (code.empty() ? "" : " (" + printable(code) + ")") + "\n");
}

std::string random_key() {
  std::array<unsigned char, 16> bytes;
  CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

Session::Session(const Options& options, const CliIo& io, HttpClientOptions client_options, HttpClient client)
    : options_(&options),
      io_(&io),
      client_options_(std::move(client_options)),
      client_(std::move(client)),
      call_timeout_(options.call_timeout) {}

Result<Session> Session::open(const Options& options, const CliIo& io, bool needs_token) {
  const std::string urls = options.api_url.empty() ? kDefaultUrl : options.api_url;
  HttpClientOptions client_options{.ca_file = options.ca_file};
  set_urls(client_options, urls);
  if (const Result<Unit> readable = check_ca_file(client_options); !readable) return readable.error();
  if (needs_token && !options.token_file.empty()) {
    Result<std::string> token = read_token(options.token_file);
    if (!token) return token.error();
    client_options.token = std::move(*token);
    if (io.check_receiver) {
      const Result<Unit> may = io.check_receiver(urls, options.token_file);
      if (!may) return may.error();
    }
  }
  Result<HttpClient> client = HttpClient::create(client_options);
  if (!client) return client.error();
  Session session(options, io, std::move(client_options), std::move(*client));
  if (!needs_token || !options.token_file.empty()) return session;
  if (const Result<Unit> taken = session.take_login(); !taken) return taken.error();
  if (session.login_issuer_.empty()) session.find_token_again();
  return session;
}

Result<Unit> Session::take_login() {
  const std::string folder = logins_path(*io_);
  if (folder.empty()) return Unit{};
  const Result<std::optional<login::Credential>> found =
      login::current_credential(folder, client_.url(), io_->wall_now().ns / seconds(1).ns);
  if (!found) return found.error();
  if (!found->has_value()) return Unit{};
  if (io_->check_receiver) {
    const Result<Unit> may = io_->check_receiver(client_.url(), login::login_file(folder, client_.url()));
    if (!may) return may.error();
  }
  login_issuer_ = (*found)->issuer;
  renew_at_ = Time{(*found)->renew_at * seconds(1).ns};
  set_token((*found)->token);
  return Unit{};
}

std::optional<Trouble> Session::renew_login() {
  if (login_issuer_.empty() || io_->wall_now() < renew_at_) return std::nullopt;
  std::string before = std::exchange(login_issuer_, {});
  const Result<Unit> taken = take_login();
  if (!login_issuer_.empty()) return std::nullopt;
  login_issuer_ = std::move(before);  // The next call tries again.
  if (!taken) return login_trouble(taken.error());
  return Trouble{.exit_code = kExitRefused,
                 .sentence = "this login was ended with gpu-cli logout; log in again with gpu-cli login",
                 .code = "login_ended"};
}

void Session::set_token(std::string token) {
  if (token == client_options_.token) return;
  client_options_.token = std::move(token);
  Result<HttpClient> client = HttpClient::create(client_options_);
  CHECK(client.ok());  // The same URL was accepted before.
  client_ = std::move(*client);
}

bool Session::is_local() const {
  return client_options_.url.starts_with(kUnixScheme) && client_options_.other_urls.empty() &&
         is_named_over_sockets();
}

std::string Session::credential_hint() const {
  if (!login_issuer_.empty())
    return "the scheduler does not accept this login; log in again with gpu-cli login";
  if (options_->token_file.empty())
    return "the scheduler wants a credential; give your API key, or a copy of its DATA_DIR/token, with "
           "--token-file";
  return "the scheduler does not accept the token in " + options_->token_file +
         "; use your API key or a copy of its DATA_DIR/token";
}

bool Session::may_find_token() const {
  return !is_known() && options_->token_file.empty() && io_->find_token != nullptr;
}

bool Session::find_token_again() {
  if (!may_find_token()) return true;
  std::optional<std::string> token = io_->find_token(client_.url(), client_options_.ca_file);
  if (!token) return false;
  set_token(std::move(*token));
  return true;
}

Session Session::fork() const {
  Result<HttpClient> client = HttpClient::create(client_options_);
  CHECK(client.ok());  // The same options were accepted before.
  Session session(*options_, *io_, client_options_, std::move(*client));
  session.login_issuer_ = login_issuer_;
  session.renew_at_ = renew_at_;
  return session;
}

Reply Session::perform(HttpRequest request, const HttpOnData* on_data, const HttpOnHead* on_head) {
  if (!request.target.starts_with(kNative) && !request.target.starts_with(kDoors))
    request.target = "/api/v1" + request.target;
  if (request.method != "GET") {
    if (std::string name = requester_name(*io_); !name.empty())
      request.headers.emplace_back("X-Requested-By", std::move(name));
  }
  bool began = false;  // Something of a stream was handed on: only its reader can go on with it.
  const HttpOnData take = [&](std::string_view data) {
    began = true;
    return (*on_data)(data);
  };
  for (;;) {
    Reply reply = perform_once(request, on_data == nullptr ? nullptr : &take, on_head);
    if (!reply.trouble || !reply.trouble->passing) search_ = {};
    if (!reply.trouble || began || !may_go_elsewhere(request, *reply.trouble) || !pass_over(*reply.trouble))
      return reply;
  }
}

bool Session::pass_over(const Trouble& trouble) {
  const std::size_t count = client_options_.other_urls.size() + 1;
  if (count == 1) return false;
  const auto now = std::chrono::steady_clock::now();
  if (search_.passed_over == 0) search_.began = now;
  const Duration most = std::min(kSearchMax, call_timeout_);
  if (search_.paused >= most || now - search_.began >= std::chrono::nanoseconds(most.ns)) return false;
  client_.pass_over();
  const bool all_tried = ++search_.passed_over % count == 0 || trouble.code == "unreachable";
  if (!all_tried) return true;
  search_.pause = std::clamp(search_.pause * 2, kSearchPauseFirst, kSearchPauseMax);
  const Duration pause = jittered(search_.pause);
  io_->pause(pause);
  search_.paused = search_.paused + pause;
  find_token_again();  // A scheduler that was away could not name it.
  return true;
}

Reply Session::perform_once(const HttpRequest& request, const HttpOnData* on_data,
                            const HttpOnHead* on_head) {
  if (std::optional<Trouble> trouble = renew_login()) return {.trouble = std::move(trouble)};
  Result<HttpAnswer> answer =
      on_data == nullptr ? client_.request(request)
                         : client_.stream(request, *on_data, on_head == nullptr ? HttpOnHead() : *on_head);
  if (!answer) return {.trouble = trouble_of(answer.error(), client_.url())};
  Reply reply{.text = std::move(answer->body)};
  const bool refused = answer->status / 100 != 2;
  if (on_data != nullptr && !refused) return reply;
  Result<Json> json = Json::parse(reply.text);
  if (json) reply.json = *json;
  if (refused) {
    reply.trouble = refusal_of(*answer, reply.json, credential_hint());
    // A long call ends with its token: the next one has another.
    if (answer->status == 401 && !login_issuer_.empty() && io_->wall_now() >= renew_at_)
      reply.trouble->passing = true;
    if (has_fields_of_options(request.method, request.target))
      reply.trouble->sentence = in_option_words(reply.trouble->sentence, reply.json["field"].text());
    // A tenant that is asked for by its id keeps the id in sentences about it.
    if (request.target.find("/tenants") == std::string::npos)
      reply.trouble->sentence = with_tenant_names(*this, reply.trouble->sentence);
  } else if (!reply.json.is_object()) {
    reply.trouble =
        Trouble{.sentence = "the server at " + client_.url() + " is not a scheduler; check --api-url",
                .code = "bad_answer"};
  }
  return reply;
}

Reply Session::get(const std::string& path) { return get(path, call_timeout_); }

Reply Session::get(const std::string& path, Duration timeout) {
  return perform({.method = "GET", .target = path, .timeout = timeout, .repeatable = true}, nullptr);
}

Reply Session::send(const std::string& method, const std::string& path, const std::string& body) {
  return perform({.method = method,
                  .target = path,
                  .body = body,
                  .headers = {{"Idempotency-Key", random_key()}},
                  .timeout = call_timeout_},
                 nullptr);
}

Reply Session::post_once(const std::string& path, const std::string& body, const std::string& key) {
  return perform({.method = "POST",
                  .target = path,
                  .body = body,
                  .headers = {{"Idempotency-Key", key}},
                  .timeout = call_timeout_,
                  .repeatable = true},
                 nullptr);
}

Reply Session::stream(const std::string& path, const HttpOnData& on_data, const HttpOnHead& on_head) {
  return perform({.method = "GET", .target = path, .repeatable = true}, &on_data, &on_head);
}

SocketReply Session::open_socket(const std::string& path) {
  SocketReply reply;
  if (std::optional<Trouble> trouble = renew_login()) return {.trouble = std::move(trouble)};
  Result<WebSocketClient::Connected> connected =
      WebSocketClient::connect(client_options_, "/api/v1" + path, options_->call_timeout);
  if (!connected) {
    reply.trouble = trouble_of(connected.error(), client_.url());
  } else if (!connected->socket) {
    const Result<Json> json = Json::parse(connected->answer.body);
    reply.trouble = refusal_of(connected->answer, json ? *json : Json(), credential_hint());
  } else {
    reply.socket = std::move(connected->socket);
  }
  return reply;
}

Reply Session::stream_post(const std::string& path, const std::string& body, const HttpOnData& on_data) {
  return perform({.method = "POST", .target = path, .body = body, .repeatable = true}, &on_data);
}

int Session::fail(const Trouble& trouble) const {
  fail(trouble.exit_code, trouble.sentence, trouble.code);
  // People at a terminal may be here for the first time; programs get the one line.
  if (trouble.exit_code == kExitUnreachable && io_->err_is_terminal) io_->err(kFirstSteps);
  return trouble.exit_code;
}

int Session::fail(int exit_code, const std::string& sentence, const std::string& code) const {
  print_error(*io_, sentence, code);
  return exit_code;
}

bool Patience::wait_again() {
  if (waited_ >= kPatienceMax) return false;
  const Duration pause = jittered(next_);
  io_.pause(pause);
  waited_ = waited_ + pause;
  next_ = std::min(next_ * 2, kPauseMax);
  return true;
}

void Patience::renew() {
  next_ = kFirst;
  waited_ = {};
}

}  // namespace gpusched::cli
