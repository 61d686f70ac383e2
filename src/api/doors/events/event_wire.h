#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/http/rest_gate.h"

namespace gpusched::api {

/// How events reach one client: what a piece is, and how it goes out. Everything is on the thread of whoever
/// has the events, one call at a time, except what is said to be the server's.
class EventWire {
 public:
  using Pieces = std::vector<std::string>;

  virtual ~EventWire() = default;
  /// Begins the answer, on the server's thread where it becomes a WebSocket. False: the client wants its head
  /// only, and has got it. `gone` takes the place of what the call does when its client goes away, where the
  /// call ends with its answer's beginning.
  virtual bool begin(std::function<void()> gone) = 0;
  /// Answers with an error instead; nothing has begun.
  virtual void fail(const ApiError& error) = 0;
  /// Sends the pieces in their order. `written` is called on the server's thread when the kernel took them
  /// (true), or when the client is gone.
  virtual void send(Pieces pieces, std::function<void(bool alive)> written) = 0;
  /// The piece sent when nothing happens, so that both ends notice when the other is gone; empty: this wire
  /// sees to that by itself.
  virtual std::string idle_piece() const = 0;
  virtual void finish() = 0;
};

/// Server-Sent Events: a piece is an event with its empty line.
std::unique_ptr<EventWire> sse_wire(RestCallPtr call);
/// "event: NAME\ndata: DATA\n\n"
std::string sse_event(std::string_view name, std::string_view data);
/// The event with an id, which a client gives back as Last-Event-ID.
std::string sse_with_id(std::string event, uint64_t id);

/// A WebSocket: a piece is a text message. Messages of the client are not looked at. The request asks for an
/// upgrade with the key.
std::unique_ptr<EventWire> socket_wire(RestCallPtr call, std::string websocket_key);
/// The last message of a WebSocket before its goodbye, when its caller may no longer have it.
std::string ended_json(const ApiError& error);
/// Why the request cannot become a WebSocket; nothing: it can.
std::optional<ApiError> check_upgrade(const HttpRequest& request);

}  // namespace gpusched::api
