#include "api/doors/events/event_wire.h"

#include <utility>

#include "api/contract/json_writer.h"
#include "base/net/websocket.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kClientMessageBytesMax = 64 * 1024;

class SseWire final : public EventWire {
 public:
  bool begin(RestCall& call, std::function<void()>) override {
    HttpResponse head{.content_type = "text/event-stream"};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");  // A proxy must not collect events.
    const bool head_only = call.method() == HttpMethod::kHead;
    stream_ = call.stream(std::move(head));
    return !head_only;
  }
  void send(Pieces pieces, std::function<void(bool alive)> written) override {
    std::string events = std::move(pieces.front());
    for (std::size_t i = 1; i < pieces.size(); ++i) events += pieces[i];
    stream_.write(std::move(events), std::move(written));
  }
  std::string idle_piece() const override { return ":\n\n"; }
  void finish() override { stream_.finish(); }

 private:
  HttpStream stream_;
};

class SocketWire final : public EventWire {
 public:
  explicit SocketWire(std::string key) : key_(std::move(key)) {}

  bool begin(RestCall& call, std::function<void()> gone) override {
    socket_ =
        call.upgrade(key_, kClientMessageBytesMax,
                     {.on_message = [](bool, const std::string&) {}, .on_gone = std::move(gone)}, ended_json);
    return true;
  }
  void send(Pieces pieces, std::function<void(bool alive)> written) override {
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) socket_.send(true, std::move(pieces[i]));
    socket_.send(true, std::move(pieces.back()), std::move(written));
  }
  std::string idle_piece() const override { return {}; }  // The server pings.
  void finish() override { socket_.close(websocket::kNormal, "all is told"); }

 private:
  const std::string key_;
  WebSocket socket_;
};

}  // namespace

std::unique_ptr<EventWire> sse_wire() { return std::make_unique<SseWire>(); }

std::string sse_event(std::string_view name, std::string_view data) {
  std::string out;
  out.reserve(name.size() + data.size() + 16);
  return out.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
}

std::string sse_with_id(std::string event, uint64_t id) {
  event.pop_back();
  return event.append("id: ").append(std::to_string(id)).append("\n\n");
}

std::unique_ptr<EventWire> socket_wire(std::string websocket_key) {
  return std::make_unique<SocketWire>(std::move(websocket_key));
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
