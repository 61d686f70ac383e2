#include "api/doors/session/session_rest.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "api/contract/json_writer.h"
#include "api/doors/events/event_wire.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/rest_query.h"
#include "api/doors/session/file_relay.h"
#include "api/doors/session/session_message.h"
#include "base/net/websocket.h"
#include "base/session_limits.h"

namespace gpusched::api {
namespace {

constexpr Duration kOpenWithin = seconds(10);  // From the upgrade to the first message.
constexpr std::size_t kMessageBytesMax = limits::kSessionCommandBytesMax * 2;
constexpr char kChannelOutput = 1, kChannelErrorOutput = 2;

/// A number, or 0; the message's `type` decides which fields mean something.
uint32_t number(const std::optional<int64_t>& value) { return static_cast<uint32_t>(value.value_or(0)); }

/// One WebSocket and the session, or the connection to a port, behind it. The client's words come on the
/// server's thread, the session's on the host's.
class SessionLink final : public SessionPeer, public std::enable_shared_from_this<SessionLink> {
 public:
  SessionLink(Backend& backend, HttpServer& server, JobId job, std::string tenant)
      : backend_(backend), server_(server), job_(job), tenant_(std::move(tenant)) {}

  void begin(const std::string& key, const RestCallPtr& call) {
    caller_ = call->caller();
    const auto self = shared_from_this();
    socket_ = call->upgrade(
        key, kMessageBytesMax,
        {.on_message = [self](bool is_text, std::string data) { self->on_message(is_text, std::move(data)); },
         .on_gone = [self] { self->on_gone(); }},
        ended_json);
    note_ = std::move(call->note());
    open_timer_ = server_.run_after(kOpenWithin, [self] {
      if (self->session_ == nullptr && !self->gone_)
        self->socket_.close(websocket::kPolicyViolation, "no session was opened within 10 s");
    });
  }

  void on_unix_user(const std::string& user) override { note_.line.unix_user = user; }
  void on_number(uint64_t session) override {
    if (taken_up_) note_.tell(nullptr);  // Another one is opened first.
    std::string out;
    JsonWriter(out).begin_object().field("type", "session").field("session", session).end_object();
    socket_.send(true, std::move(out));
  }
  void on_opened() override {
    note_.tell(nullptr);
    socket_.send(true, R"({"type":"opened"})");
  }
  void on_output(std::string data, bool of_stderr) override {
    const auto size = static_cast<int64_t>(data.size());
    data.insert(data.begin(), of_stderr ? kChannelErrorOutput : kChannelOutput);
    // Only what the client's kernel took is asked for again: so much waits for a slow reader, and no more.
    socket_.send(false, std::move(data), [self = shared_from_this(), size](bool alive) {
      if (alive && self->session_ != nullptr) self->session_->grant(size);
    });
  }
  void on_output_end() override { socket_.send(true, R"({"type":"end_of_output"})"); }
  void on_credit(int64_t bytes) override {
    input_left_ += bytes;  // Before the client hears of it.
    std::string out;
    JsonWriter(out).begin_object().field("type", "credit").field("bytes", bytes).end_object();
    socket_.send(true, std::move(out));
  }
  void on_end(End end) override {
    note_.tell(end.error ? &*end.error : nullptr);
    std::string out;
    if (end.error) {
      out = ended_json(*end.error);
    } else {
      JsonWriter json(out);
      json.begin_object().field("type", "ended");
      json.field("exit_code", end.exit_code).field("signal", end.signal);
      if (!end.message.empty()) json.field("message", end.message);
      json.end_object();
    }
    socket_.send(true, std::move(out));
    socket_.close(websocket::kNormal, "the session has ended");
  }

 private:
  void on_message(bool is_text, std::string data) {
    if (!is_text) return on_input(std::move(data));
    ClientMessage message;
    if (const auto problem = read_client_message(data, message)) return fail(problem->message);
    const std::string& type = message.type.value_or("");
    if (session_ == nullptr) {
      if (type != "open") return fail("the first message must be of type \"open\"");
      return open(std::move(message));
    }
    if (type == "resize") {
      session_->resize(number(message.rows), number(message.columns));
    } else if (type == "signal") {
      session_->signal(number(message.signal));
    } else if (type == "end_of_input") {
      session_->end_input();
    } else if (type == "detach" && is_port_) {
      fail("a connection to a port cannot be detached from");
    } else if (type == "detach") {
      session_->detach();
      socket_.close(websocket::kNormal, "detached");
    } else {
      fail("unknown type of message: \"" + type.substr(0, 40) + "\"");
    }
  }

  void open(ClientMessage message) {
    server_.cancel(open_timer_);
    SessionRequest request{.job = job_,
                           .tenant = tenant_,
                           .attempt = number(message.attempt),
                           .member = number(message.member),
                           .command = message.command.value_or(StringList()),
                           .terminal = message.terminal.value_or(false),
                           .rows = number(message.rows),
                           .columns = number(message.columns),
                           .term = message.term.value_or(""),
                           .environment = message.environment.value_or(StringMap()),
                           .session = static_cast<uint64_t>(message.session.value_or(0)),
                           .port = number(message.port)};
    is_port_ = request.port != 0;
    const bool again = request.session != 0 && request.rows > 0;
    taken_up_ = request.session != 0;
    const uint32_t rows = request.rows, columns = request.columns;
    session_ = backend_.open_session(caller_, std::move(request), shared_from_this());
    if (again) session_->resize(rows, columns);  // It also has a program draw its screen again.
  }

  void on_input(std::string data) {
    if (session_ == nullptr) return fail("the first message must be of type \"open\"");
    const auto size = static_cast<int64_t>(data.size());
    if (input_left_.fetch_sub(size) < size) return fail("more input was sent than the granted credit allows");
    session_->input(std::move(data));
  }

  void fail(const std::string& why) {
    if (session_ != nullptr) session_->close();
    socket_.close(websocket::kPolicyViolation, why);
  }

  void on_gone() {
    gone_ = true;
    server_.cancel(open_timer_);
    // After an end or a detachment this does nothing; else the client is gone, and the command is hung up.
    if (session_ != nullptr) session_->close();
    session_ = nullptr;
  }

  Backend& backend_;
  HttpServer& server_;
  const JobId job_;
  const std::string tenant_;
  CallerPtr caller_;
  CallNote note_;          ///< Used on the host's thread, once a session is asked for, as is the next.
  bool taken_up_ = false;  ///< A session that was there.
  WebSocket socket_;
  HttpTimer open_timer_;
  std::atomic<int64_t> input_left_{limits::kSessionCreditBytes};
  std::shared_ptr<SessionHandle> session_;  ///< The server's thread, as is the one below.
  bool gone_ = false;
  bool is_port_ = false;
};

}  // namespace

std::span<const SessionRest::Path> SessionRest::paths() {
  static constexpr Path kPaths[] = {{"session", access::Action::kEnterJob},
                                    {"files", access::Action::kReadJobFile}};
  return kPaths;
}

namespace {

/// "12" of "/v1/jobs/12/files", still encoded, and what the path asks for; null: it is none of them.
std::pair<std::string_view, const SessionRest::Path*> split(std::string_view path) {
  if (path.starts_with("/api/")) path.remove_prefix(4);
  constexpr std::string_view kJobs = "/v1/jobs/";
  if (!path.starts_with(kJobs)) return {};
  path.remove_prefix(kJobs.size());
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos) return {};
  const auto found =
      std::ranges::find(SessionRest::paths(), path.substr(slash + 1), &SessionRest::Path::last);
  return {path.substr(0, slash), found == SessionRest::paths().end() ? nullptr : &*found};
}

}  // namespace

void SessionRest::name_call(const HttpRequest& request, CallNote& note) {
  const auto [job, path] = split(request.path);
  if (path == nullptr || request.method != HttpMethod::kGet) return;
  note.name(path->action, percent_decoded(job, false).value_or(std::string(job)));
  if (path->action == access::Action::kEnterJob) {
    note.line.door = audit::Door::kWebSocket;
  } else if (!request.path.starts_with("/api/")) {
    note.line.door = audit::Door::kNativeRest;
  }
}

bool SessionRest::handle(const HttpRequest& request, const RestCallPtr& call) {
  const auto [encoded, path] = split(request.path);
  if (path == nullptr) return false;
  name_call(request, call->note());
  if (request.method != HttpMethod::kGet) {
    HttpResponse response{.status = row_of(ErrorKind::kMethodNotAllowed).http_status,
                          .body = error_json({ErrorKind::kMethodNotAllowed, "this path supports GET only"})};
    response.headers.emplace_back("Allow", "GET");
    call->send(std::move(response));
    return true;
  }
  // The brackets of an element's id come encoded.
  const std::optional<std::string> id = percent_decoded(encoded, false);
  const auto job = parse_job_id(id.value_or(""));
  if (!job) {
    call->fail(no_such_job(id.value_or(std::string(encoded))));
  } else if (path->action == access::Action::kEnterJob) {
    open_session(request, *job, call);
  } else {
    read_file(request, *job, call);
  }
  return true;
}

void SessionRest::open_session(const HttpRequest& request, JobId job, const RestCallPtr& call) {
  if (!request.wants_websocket || request.websocket_version != "13" ||
      !websocket::is_client_key(request.websocket_key)) {
    return call->fail({ErrorKind::kInvalidArgument,
                       "this path speaks WebSocket, version 13; open a session with `gpu-cli exec`"});
  }
  const auto query = parse_query(request.query);
  if (!query)
    return call->fail(
        {ErrorKind::kInvalidArgument, "the query has an invalid percent escape; encode it correctly"});
  std::string tenant;
  for (const auto& [name, value] : *query) {
    if (name == "tenant_id") tenant = value;
  }
  if (const auto refused = call->become_session()) return call->fail(*refused);
  std::make_shared<SessionLink>(backend_, *server_, job, tenant)->begin(request.websocket_key, call);
}

void SessionRest::read_file(const HttpRequest& request, JobId job, const RestCallPtr& call) {
  const auto query = parse_query(request.query);
  if (!query)
    return call->fail(
        {ErrorKind::kInvalidArgument, "the query has an invalid percent escape; encode it correctly"});
  FileRequest wanted{.job = job};
  for (const auto& [name, value] : *query) {
    if (name == "tenant_id") wanted.tenant = value;
    if (name == "path") wanted.path = value;
    if (name != "attempt" && name != "member") continue;
    const auto number = parse_count(value, kAttemptMax);
    if (!number) {
      return call->fail({ErrorKind::kInvalidArgument, name + " must be a whole number", name});
    }
    (name == "attempt" ? wanted.attempt : wanted.member) = static_cast<uint32_t>(*number);
  }
  if (wanted.path.empty() || wanted.path.size() > limits::kPathBytesMax) {
    return call->fail({ErrorKind::kInvalidArgument,
                       "path must be given, with 1 to 4096 bytes, as in ?path=results.csv", "path"});
  }
  relay_file(backend_, call, std::move(wanted), file_bytes_max_);
}

}  // namespace gpusched::api
