#include "api/http/http_server.h"

#include "api/contract/errors.h"
#include "api/http/http_core.h"
#include "base/check.h"

namespace gpusched::api {

using http_internal::Core;

void HttpStream::write(std::string data, std::function<void(bool)> written) {
  if (connection_ == nullptr) return;
  connection_->core().submit({.kind = Core::Task::Kind::kStreamWrite,
                              .connection = connection_,
                              .request = request_,
                              .response = {.body = std::move(data)},
                              .written = std::move(written)},
                             true);
}

void HttpStream::finish() {
  if (connection_ == nullptr) return;
  connection_->core().submit(
      {.kind = Core::Task::Kind::kStreamFinish, .connection = connection_, .request = request_}, true);
}

void HttpStream::abort() {
  if (connection_ == nullptr) return;
  connection_->core().submit(
      {.kind = Core::Task::Kind::kStreamAbort, .connection = connection_, .request = request_}, true);
}

void HttpBody::read(std::function<void(std::string, State)> next) {
  if (connection_ == nullptr) return;
  connection_->core().submit({.kind = Core::Task::Kind::kCall,
                              .call = [connection = connection_, request = request_,
                                       next = std::move(next)] { connection->body_read(request, next); }},
                             true);
}

HttpBody HttpReply::body() const {
  CHECK(connection_ != nullptr);  // Not answered yet.
  return {connection_, request_};
}

void WebSocket::send(bool is_text, std::string data, std::function<void(bool)> written) {
  if (connection_ == nullptr) return;
  connection_->core().submit({.kind = Core::Task::Kind::kSocketSend,
                              .connection = connection_,
                              .request = request_,
                              .response = {.status = is_text ? 1 : 0, .body = std::move(data)},
                              .written = std::move(written)},
                             true);
}

void WebSocket::close(uint16_t code, std::string reason) {
  if (connection_ == nullptr) return;
  connection_->core().submit({.kind = Core::Task::Kind::kSocketClose,
                              .connection = connection_,
                              .request = request_,
                              .response = {.status = code, .body = std::move(reason)}},
                             true);
}

HttpReply::HttpReply(std::shared_ptr<http_internal::Connection> connection, uint64_t request)
    : connection_(std::move(connection)), request_(request) {}
HttpReply::HttpReply(HttpReply&& other) noexcept = default;

HttpReply& HttpReply::operator=(HttpReply&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(request_, other.request_);
  return *this;
}

HttpReply::~HttpReply() {
  if (connection_ == nullptr) return;
  const ApiError error{ErrorKind::kInternal,
                       "the request was dropped without an answer; this is a bug of the scheduler: report it "
                       "with the scheduler's log"};
  send({.status = row_of(error.kind).http_status, .body = error_json(error)});
}

void HttpReply::send(HttpResponse response) {
  CHECK(connection_ != nullptr);  // Answered once.
  const auto connection = std::move(connection_);
  connection->core().submit({.kind = Core::Task::Kind::kRespond,
                             .connection = connection,
                             .request = request_,
                             .response = std::move(response)},
                            true);
}

void HttpReply::send_at_flush(HttpResponse response) {
  CHECK(connection_ != nullptr);  // Answered once.
  const auto connection = std::move(connection_);
  connection->core().submit({.kind = Core::Task::Kind::kRespond,
                             .connection = connection,
                             .request = request_,
                             .response = std::move(response)},
                            false);
}

HttpStream HttpReply::stream(HttpResponse head) {
  CHECK(connection_ != nullptr);  // Answered once.
  const auto connection = std::move(connection_);
  connection->core().submit({.kind = Core::Task::Kind::kStreamBegin,
                             .connection = connection,
                             .request = request_,
                             .response = std::move(head)},
                            true);
  return HttpStream(connection, request_);
}

WebSocket HttpReply::upgrade(const std::string& websocket_key, std::size_t message_bytes_max,
                             WebSocket::Handlers handlers) {
  CHECK(connection_ != nullptr);  // Answered once.
  CHECK(connection_->core().on_own_thread());
  const auto connection = std::move(connection_);
  connection->upgrade(request_, websocket_key, message_bytes_max, std::move(handlers));
  return WebSocket(connection, request_);
}

void HttpReply::hold(std::shared_ptr<CallTicket> ticket) {
  CHECK(connection_ != nullptr);
  CHECK(connection_->core().on_own_thread());
  connection_->hold(request_, std::move(ticket));
}

void HttpReply::on_gone(std::function<void()> gone) {
  CHECK(connection_ != nullptr);
  CHECK(connection_->core().on_own_thread());
  connection_->set_gone(request_, std::move(gone));
}

OpenRequest HttpReply::open_request() const {
  CHECK(connection_ != nullptr);  // Not answered yet.
  return {connection_, request_};
}

void OpenRequest::keep(std::shared_ptr<void> token) const {
  const auto connection = connection_.lock();
  if (connection == nullptr) return;
  connection->core().submit(
      {.kind = Core::Task::Kind::kCall,
       .call = [connection, request = request_,
                token = std::move(token)]() mutable { connection->keep(request, std::move(token)); }},
      true);
}

void OpenRequest::end(HttpEnding ending) const {
  const auto connection = connection_.lock();
  if (connection == nullptr) return;
  connection->core().later([weak = connection_, request = request_, ending = std::move(ending)]() mutable {
    if (const auto open = weak.lock()) open->end_open(request, std::move(ending));
  });
}

void OpenRequest::call(std::function<void()> then) const {
  const auto connection = connection_.lock();
  if (connection == nullptr) return;
  connection->core().later([weak = connection_, request = request_, then = std::move(then)] {
    const auto open = weak.lock();
    if (open != nullptr && open->current(request)) then();
  });
}

HttpServer::HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(
    HttpServerOptions options, std::vector<HttpListener> listeners,
    const std::function<Result<Unit>(HttpServer&)>& before_serving) {
  CHECK(!listeners.empty());
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_shared<Core>(options)));
  for (HttpListener& listener : listeners) {
    const Result<Unit> listening = server->core_->listen(std::move(listener), server->ports_);
    if (!listening) return listening.error();
  }
  server->core_->limit_connections();
  if (before_serving != nullptr) {
    const Result<Unit> ready = before_serving(*server);
    if (!ready) return ready.error();
  }
  server->core_->run();
  return server;
}

HttpServer::~HttpServer() { shutdown(); }

std::size_t HttpServer::connection_max() const { return core_->connection_max(); }
void HttpServer::flush() { core_->flush(); }
HttpTimer HttpServer::run_after(Duration delay, std::function<void()> due) {
  return core_->run_after(delay, std::move(due));
}
void HttpServer::cancel(HttpTimer timer) { core_->cancel(timer); }
void HttpServer::shutdown() { core_->stop(); }

HttpServer::Counts HttpServer::counts() const {
  return {.requests = core_->requests.load(std::memory_order_relaxed),
          .connections_accepted = core_->accepted.load(std::memory_order_relaxed),
          .connections_open = core_->open.load(std::memory_order_relaxed),
          .connections_turned_away = core_->turned_away.load(std::memory_order_relaxed)};
}

}  // namespace gpusched::api
