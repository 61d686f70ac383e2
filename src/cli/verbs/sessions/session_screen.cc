#include "cli/verbs/sessions/session_screen.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include "base/net/websocket.h"
#include "base/session_limits.h"
#include "cli/terminal/terminal.h"

namespace gpusched::cli {
namespace {

constexpr int kKilledBase = 128;
constexpr std::size_t kReadBytes = 16 * 1024;
constexpr std::size_t kWriteBytes =
    PIPE_BUF;  // As much as a descriptor takes without blocking, once poll says so.
constexpr std::size_t kUnsentMax = 256 * 1024;

/// Signals as bytes to read, for as long as this lives.
class SignalSource {
 public:
  SignalSource() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP}) sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(fd_ >= 0);
  }
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;
  ~SignalSource() {
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int fd() const { return fd_; }
  int take() const {
    signalfd_siginfo info{};
    return ::read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  int fd_ = -1;
};

/// One session, from its first message to its end.
class SessionScreen {
 public:
  SessionScreen(Session& session, const ExecOptions& options, WebSocketClient socket)
      : session_(session), options_(options), socket_(std::move(socket)) {}

  SessionEnd run() {
    if (options_.terminal) raw_.emplace(STDIN_FILENO);
    socket_.send(true, opening());
    if (!options_.interactive) end_input();
    while (!done_) turn();
    raw_.reset();  // Before anything is said: words on a raw terminal are a mess.
    SessionEnd end{.opened = true, .detached = detached_, .killed_by = killed_by_};
    end.finished = ended_ && end_["code"].text().empty();
    end.exit_code = conclude();
    return end;
  }

 private:
  std::string opening() const {
    JsonObjectWriter json;
    json.add("type", "open");
    if (options_.session > 0) json.add("session", options_.session);
    if (!options_.command.empty()) json.add("command", options_.command);
    if (options_.attempt > 0) json.add("attempt", options_.attempt);
    if (options_.member > 0) json.add("member", options_.member);
    if (options_.terminal) {
      const TerminalSize size = terminal_size(STDIN_FILENO);
      json.add("terminal", true);
      json.add("rows", int64_t{size.rows});
      json.add("columns", int64_t{size.columns});
      json.add("term", session_.io().environment("TERM"));
    }
    return json.text();
  }

  void turn() {
    const bool reads_input = input_open_ && credit_ > 0 && socket_.unsent() < kUnsentMax && !done_;
    const bool writes_out = !out_.empty();
    const bool writes_err = !err_.empty();
    // What cannot be written yet is not asked for: the scheduler holds it back.
    const bool reads_socket = !writes_out && !writes_err;
    const int socket_events = (reads_socket ? POLLIN : 0) | (socket_.unsent() > 0 ? POLLOUT : 0);
    const auto source = [](bool wanted, int fd, int events) {
      return pollfd{.fd = wanted ? fd : -1, .events = static_cast<short>(events), .revents = 0};
    };
    std::array<pollfd, 5> sources = {
        source(true, signals_.fd(), POLLIN), source(reads_input, options_.input_fd, POLLIN),
        source(writes_out, STDOUT_FILENO, POLLOUT), source(writes_err, STDERR_FILENO, POLLOUT),
        source(socket_events != 0, socket_.descriptor(), socket_events)};
    if (::poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) return finish();
    if (sources[0].revents != 0) on_signal(signals_.take());
    if (sources[1].revents != 0) read_input();
    if (sources[2].revents != 0) write_some(STDOUT_FILENO, out_);
    if (sources[3].revents != 0) write_some(STDERR_FILENO, err_);
    socket_.pump(reads_socket && (sources[4].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
    // A peer that is gone while we still write is not polled in vain.
    take_messages();
    const bool written = out_.empty() && err_.empty();
    if (written && (ended_ || socket_.over())) finish();
  }

  void finish() { done_ = true; }

  void on_signal(int signal) {
    switch (signal) {
      case SIGWINCH:
        return resize();
      case SIGTSTP:
        if (raw_) raw_->restore();
        ::raise(SIGSTOP);
        if (raw_) raw_->resume();
        return resize();
      case SIGINT:
      case SIGQUIT:
        // Twice is meant for us: the command did not end by the first.
        if (std::exchange(last_signal_, signal) != signal) return send_signal(signal);
        break;
      case 0:
        return;
      default:
        break;
    }
    killed_by_ = signal;
    socket_.close(websocket::kGoingAway);
    finish();
  }

  void send_signal(int signal) {
    JsonObjectWriter json;
    json.add("type", "signal");
    json.add("signal", int64_t{signal});
    socket_.send(true, json.text());
  }

  void resize() {
    if (!options_.terminal) return;
    const TerminalSize size = terminal_size(STDIN_FILENO);
    JsonObjectWriter json;
    json.add("type", "resize");
    json.add("rows", int64_t{size.rows});
    json.add("columns", int64_t{size.columns});
    socket_.send(true, json.text());
  }

  void end_input() {
    input_open_ = false;
    socket_.send(true, R"({"type":"end_of_input"})");
  }

  void read_input() {
    std::array<char, kReadBytes> piece;
    const auto size = std::min<std::size_t>(piece.size(), static_cast<std::size_t>(credit_));
    const ssize_t got = ::read(options_.input_fd, piece.data(), size);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    // A raw terminal gives Ctrl-D as a byte: its end is that somebody has closed it.
    if (got <= 0) return options_.terminal ? on_signal(SIGHUP) : end_input();
    std::string data(piece.data(), static_cast<std::size_t>(got));
    if (options_.terminal) data = keys_.feed(data);
    if (!data.empty()) {
      credit_ -= static_cast<int64_t>(data.size());
      socket_.send(false, data);
    }
    if (!keys_.detached()) return;
    detached_ = true;
    socket_.send(true, R"({"type":"detach"})");
    input_open_ = false;
  }

  void take_messages() {
    while (std::optional<WebSocketClient::Message> message = socket_.take()) {
      if (message->is_text) {
        on_control(*message);
      } else if (!message->data.empty()) {
        (message->data[0] == 2 ? err_ : out_).append(message->data, 1);
      }
    }
  }

  void on_control(const WebSocketClient::Message& message) {
    const Result<Json> parsed = Json::parse(message.data);
    if (!parsed) return;
    const Json& json = *parsed;
    const std::string type = json["type"].text();
    if (type == "credit") credit_ += json["bytes"].integer();
    if (type == "session") number_ = json["session"].integer();
    if (type != "ended") return;
    ended_ = true;
    input_open_ = false;
    end_ = json;
  }

  void write_some(int fd, std::string& data) {
    const ssize_t sent = ::write(fd, data.data(), std::min(data.size(), kWriteBytes));
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (sent < 0) {
      // The command's own writes go on into nothing, as its end is still of interest.
      output_lost_ = errno;
      return data.clear();
    }
    data.erase(0, static_cast<std::size_t>(sent));
  }

  /// Says how it ended, and with what gpu-cli ends.
  int conclude() {
    if (killed_by_ != 0) return kKilledBase + killed_by_;
    if (detached_) {
      session_.io().err(
          "\r\n"
          "detached from session " +
          std::to_string(number_) + "; resume it with: gpu-cli exec " + options_.job + " --session " +
          std::to_string(number_) + " -it\n");
      return kExitOk;
    }
    if (!ended_) {
      const std::string why = socket_.reason().empty() ? "it was closed" : socket_.reason();
      return session_.fail(kExitUnexpected,
                           "the connection to the scheduler broke (" + why + "): the session has ended" +
                               (options_.holds_job ? ", and its job with it" : "; the job is not affected"),
                           "session_lost");
    }
    const std::string code = end_["code"].text();
    if (!code.empty()) {
      const bool lost = code == "session_lost" || code == "session_failed" || code == "internal";
      return session_.fail(lost ? kExitUnexpected : kExitRefused, end_["error"].text(), code);
    }
    if (!end_["message"].text().empty()) session_.io().err("gpu-cli: " + end_["message"].text() + "\n");
    const auto signal = static_cast<int>(end_["signal"].integer());
    if (output_lost_ != 0) {
      session_.io().err("gpu-cli: " + lost_output(output_lost_) + "\n");
      if (signal == 0 && end_["exit_code"].integer() == 0) return kExitOutputLost;
    }
    return signal != 0 ? kKilledBase + signal : static_cast<int>(end_["exit_code"].integer());
  }

  Session& session_;
  const ExecOptions& options_;
  WebSocketClient socket_;
  const SignalSource signals_;
  std::optional<RawTerminal> raw_;
  DetachKeys keys_;
  std::string out_, err_;  ///< Not written yet; at most what one read of the socket brings.
  int64_t credit_ = limits::kSessionCreditBytes;
  int64_t number_ = 0;
  bool input_open_ = true, ended_ = false, detached_ = false, done_ = false;
  int last_signal_ = 0, killed_by_ = 0;
  int output_lost_ = 0;  ///< The errno of a write that failed.
  Json end_;
};

}  // namespace

SocketReply open_session_socket(Session& session, const std::string& job) {
  const std::string& tenant = session.options().tenant_id;
  return session.open_socket("/jobs/" + url_encoded(job) + "/session" +
                             (tenant.empty() ? "" : "?tenant_id=" + url_encoded(tenant)));
}

SessionEnd run_session(Session& session, const ExecOptions& options) {
  if (options.terminal && ::isatty(STDIN_FILENO) != 1) {
    return {.exit_code = session.fail(
                kExitUsage, "-t needs a terminal, and standard input is not one; leave -t out", "usage")};
  }
  SocketReply reply = open_session_socket(session, options.job);
  if (reply.trouble) return {.exit_code = session.fail(*reply.trouble)};
  SessionScreen screen(session, options, std::move(*reply.socket));
  return screen.run();
}

}  // namespace gpusched::cli
