#include "api/doors/events/event_wire.h"

#include <utility>

#include "api/contract/json_writer.h"
#include "base/net/websocket.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kClientMessageBytesMax = 64 * 1024;

class SseWire final : public EventWire {
 public:
  explicit SseWire(RestCallPtr call) : call_(std::move(call)) {}

  bool begin(std::function<void()>) override {
    const RestCallPtr call = std::exchange(call_, nullptr);
    HttpResponse head{.content_type = "text/event-stream"};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");  // A proxy must not collect events.
    const bool head_only = call->method() == HttpMethod::kHead;
    stream_ = call->stream(std::move(head));
    return !head_only;
  }
  void send(Pieces pieces, std::function<void(bool alive)> written) override {
    std::string events = std::move(pieces.front());
    for (std::size_t i = 1; i < pieces.size(); ++i) events += pieces[i];
    stream_.write(std::move(events), std::move(written));
  }
  void fail(const ApiError& error) override {
    if (const RestCallPtr call = std::exchange(call_, nullptr)) call->fail(error);
  }
  std::string idle_piece() const override { return ":\n\n"; }
  void finish() override { stream_.finish(); }

 private:
  RestCallPtr call_;  ///< Until it has begun, as in the next.
  HttpStream stream_;
};

class SocketWire final : public EventWire {
 public:
  SocketWire(RestCallPtr call, std::string key) : call_(std::move(call)), key_(std::move(key)) {}

  bool begin(std::function<void()> gone) override {
    socket_ = std::exchange(call_, nullptr)
                  ->upgrade(key_, kClientMessageBytesMax,
                            {.on_message = [](bool, const std::string&) {}, .on_gone = std::move(gone)},
                            ended_json);
    return true;
  }
  void send(Pieces pieces, std::function<void(bool alive)> written) override {
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) socket_.send(true, std::move(pieces[i]));
    socket_.send(true, std::move(pieces.back()), std::move(written));
  }
  void fail(const ApiError& error) override {
    if (const RestCallPtr call = std::exchange(call_, nullptr)) call->fail(error);
  }
  std::string idle_piece() const override { return {}; }  // The server pings.
  void finish() override { socket_.close(websocket::kNormal, "all is told"); }

 private:
  RestCallPtr call_;
  const std::string key_;
  WebSocket socket_;
};

}  // namespace

std::unique_ptr<EventWire> sse_wire(RestCallPtr call) { return std::make_unique<SseWire>(std::move(call)); }

std::string sse_event(std::string_view name, std::string_view data) {
  std::string out;
  out.reserve(name.size() + data.size() + 16);
  return out.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
}

std::string sse_with_id(std::string event, uint64_t id) {
  event.pop_back();
  return event.append("id: ").append(std::to_string(id)).append("\n\n");
}

std::unique_ptr<EventWire> socket_wire(RestCallPtr call, std::string websocket_key) {
  return std::make_unique<SocketWire>(std::move(call), std::move(websocket_key));
}

std::string ended_json(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("type", "ended").field("error", error.message);
  json.field("code", row_of(error.kind).code).end_object();
  return out;
}

std::optional<ApiError> check_upgrade(const HttpRequest& request) {
  if (request.wants_websocket && request.websocket_version == "13" &&
      websocket::is_client_key(request.websocket_key))
    return std::nullopt;
  return ApiError{
      ErrorKind::kInvalidArgument,
      "this path speaks WebSocket, version 13; ask with the headers Connection: Upgrade, Upgrade: "
      "websocket, Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key"};
}

}  // namespace gpusched::api
