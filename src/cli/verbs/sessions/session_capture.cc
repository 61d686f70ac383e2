#include "cli/verbs/sessions/session_capture.h"

#include <poll.h>

#include "cli/verbs/sessions/session_screen.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kCapturedBytesMax = 64 * 1024;

Trouble lost_session(std::string why) {
  return {.exit_code = kExitUnexpected, .sentence = std::move(why), .code = "session_lost", .passing = true};
}

/// Its last message.
void read_end(const Json& end, CapturedCommand& captured) {
  const std::string code = end["code"].text();
  const bool killed = end["signal"].integer() != 0;
  captured.exit_code = static_cast<int>(end["exit_code"].integer());
  if (!code.empty()) {
    captured.trouble = Trouble{.exit_code = kExitRefused, .sentence = end["error"].text(), .code = code};
  } else if (killed) {
    captured.trouble = lost_session("the session's command was killed");
  }
}

}  // namespace

CapturedCommand capture_session(Session& session, const std::string& job,
                                const std::vector<std::string>& command) {
  CapturedCommand captured;
  SocketReply reply = open_session_socket(session, job);
  if (reply.trouble) {
    captured.trouble = reply.trouble;
    return captured;
  }
  WebSocketClient& socket = *reply.socket;
  JsonObjectWriter json;
  json.add("type", "open");
  json.add("command", command);
  socket.send(true, json.text());
  socket.send(true, R"({"type":"end_of_input"})");
  while (true) {
    while (const std::optional<WebSocketClient::Message> message = socket.take()) {
      if (!message->is_text) {
        const bool is_output = !message->data.empty() && message->data[0] == 1;
        if (is_output && captured.output.size() < kCapturedBytesMax) captured.output.append(message->data, 1);
        continue;
      }
      const Result<Json> parsed = Json::parse(message->data);
      if (!parsed || (*parsed)["type"].text() != "ended") continue;
      read_end(*parsed, captured);
      return captured;
    }
    if (socket.over()) {
      captured.trouble = lost_session("the connection to the scheduler broke: " + socket.reason());
      return captured;
    }
    pollfd source{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
    if (socket.unsent() > 0) source.events |= POLLOUT;
    ::poll(&source, 1, -1);
    socket.pump(true);
  }
}

}  // namespace gpusched::cli
