#include "cli/verbs/sessions/port_connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/net/websocket.h"
#include "base/session_limits.h"
#include "cli/terminal/text.h"
#include "cli/verbs/sessions/session_screen.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kPortReadBytes = 32 * 1024;
constexpr std::size_t kPortUnsentMax = 256 * 1024;
constexpr Duration kPortOpenMost = seconds(15);

/// One connection, from its session's opening to its end.
class PortConnection {
 public:
  PortConnection(PortJob& job, Session session, int local, uint16_t remote)
      : job_(job), session_(std::move(session)), local_(local), remote_(remote) {}
  PortConnection(const PortConnection&) = delete;
  PortConnection& operator=(const PortConnection&) = delete;
  ~PortConnection() {
    // The program here must not take a connection that broke for the end of a whole answer.
    const linger hard{.l_onoff = 1, .l_linger = 0};
    if (broken_) ::setsockopt(local_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    ::close(local_);
  }

  void run() {
    session_.limit_calls(kPortOpenMost);
    SocketReply reply = open_session_socket(session_, job_.job());
    if (reply.trouble) return job_.say_refusal(reply.trouble->sentence);
    socket_.emplace(std::move(*reply.socket));
    JsonObjectWriter json;
    json.add("type", "open");
    json.add("port", int64_t{remote_});
    if (job_.member() > 0) json.add("member", job_.member());
    socket_->send(true, json.text());
    while (!done_) turn();
  }

 private:
  void turn() {
    const bool reads_local = input_open_ && credit_ > 0 && socket_->unsent() < kPortUnsentMax;
    // Bytes that the program here has not taken yet are held back by the scheduler, not here.
    const bool reads_socket = out_.empty();
    const int socket_events = (reads_socket ? POLLIN : 0) | (socket_->unsent() > 0 ? POLLOUT : 0);
    const int local_events = (reads_local ? POLLIN : 0) | (out_.empty() ? 0 : POLLOUT);
    const auto source = [](bool wanted, int fd, int events) {
      return pollfd{.fd = wanted ? fd : -1, .events = static_cast<short>(events), .revents = 0};
    };
    std::array<pollfd, 3> sources = {source(true, job_.stop().descriptor(), POLLIN),
                                     source(local_events != 0, local_, local_events),
                                     source(socket_events != 0, socket_->descriptor(), socket_events)};
    if (::poll(sources.data(), sources.size(), -1) < 0) {
      if (errno != EINTR) give_up();
      return;
    }
    if (sources[0].revents != 0) return give_up();
    if ((sources[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && reads_local) read_local();
    if ((sources[1].revents & (POLLOUT | POLLHUP | POLLERR)) != 0 && !out_.empty()) write_local();
    if (done_) return;
    socket_->pump(reads_socket && (sources[2].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
    while (const std::optional<WebSocketClient::Message> message = socket_->take()) take(*message);
    pass_end_on();
    if (out_.empty() && (ended_ || socket_->over())) conclude();
  }

  void read_local() {
    std::array<char, kPortReadBytes> piece;
    const auto size = std::min<std::size_t>(piece.size(), static_cast<std::size_t>(credit_));
    const ssize_t got = ::read(local_, piece.data(), size);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got < 0) return give_up();
    if (got == 0) {
      input_open_ = false;
      return socket_->send(true, R"({"type":"end_of_input"})");
    }
    credit_ -= got;
    socket_->send(false, std::string_view(piece.data(), static_cast<std::size_t>(got)));
  }

  void write_local() {
    const ssize_t sent = ::send(local_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (sent < 0) return give_up();
    out_.erase(0, static_cast<std::size_t>(sent));
  }

  void take(const WebSocketClient::Message& message) {
    if (!message.is_text) {
      if (!message.data.empty()) out_.append(message.data, 1);  // Behind the byte that names the stream.
      return;
    }
    const Result<Json> parsed = Json::parse(message.data);
    if (!parsed) return;
    const std::string type = (*parsed)["type"].text();
    if (type == "credit") credit_ += (*parsed)["bytes"].integer();
    if (type == "opened") job_.forget_refusal();
    if (type == "end_of_output") output_ended_ = true;
    if (type != "ended") return;
    ended_ = true;
    end_ = *parsed;
  }

  /// The job's program sends no more. The program here may still have something to say.
  void pass_end_on() {
    if (!output_ended_ || !out_.empty() || std::exchange(passed_on_, true)) return;
    ::shutdown(local_, SHUT_WR);
  }

  void conclude() {
    done_ = true;
    broken_ = !ended_ || !end_["code"].text().empty() || end_["exit_code"].integer() != 0 ||
              end_["signal"].integer() != 0;
    if (!ended_) {
      const std::string why = socket_->reason().empty() ? "it was closed" : socket_->reason();
      return job_.say_refusal("a connection through the scheduler broke: " + why);
    }
    const std::string sentence = end_["error"].text().empty() ? end_["message"].text() : end_["error"].text();
    if (broken_ && !sentence.empty()) job_.say_refusal(sentence);
  }

  /// The program here is gone, or the forward ends.
  void give_up() {
    done_ = broken_ = true;
    socket_->close(websocket::kGoingAway);
    socket_->pump(false);
  }

  PortJob& job_;
  Session session_;
  const int local_;
  const uint16_t remote_;
  std::optional<WebSocketClient> socket_;
  std::string out_;  ///< Bytes from the job that the program here has not taken.
  int64_t credit_ = limits::kSessionCreditBytes;
  bool input_open_ = true, output_ended_ = false, passed_on_ = false, ended_ = false, done_ = false;
  bool broken_ = true;  ///< Until it has ended well.
  Json end_;
};

}  // namespace

StopSign::StopSign() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

StopSign::~StopSign() { ::close(descriptor_); }

void StopSign::set() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(descriptor_, &one, sizeof one));
}

bool StopSign::is_set() const {
  pollfd source{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return ::poll(&source, 1, 0) > 0;
}

void PortJob::say_refusal(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  if (sentence == said_ || stop_.is_set()) return;
  said_ = sentence;
  io_.err("gpu-cli: " + printable(sentence) + "\n");
}

void PortJob::forget_refusal() {
  const std::lock_guard lock(mutex_);
  said_.clear();
}

void carry_connection(PortJob& job, Session session, int local, uint16_t remote) {
  PortConnection(job, std::move(session), local, remote).run();
}

}  // namespace gpusched::cli
