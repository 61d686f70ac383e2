#include "node/sessions/sessions.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/errors.h"
#include "base/session_limits.h"
#include "log/log.h"
#include "node/output/attempt_identity.h"
#include "shim/server.h"

namespace gpusched {
namespace {

constexpr int kSourceBits = 2;
constexpr uint64_t kFilesTag = UINT64_MAX;
constexpr Duration kKilledPatience = milliseconds(1'000);
constexpr int64_t kCreditBack = 64 * 1024;  // Input's credit goes back in pieces of at least so much.
constexpr char kEndOfTransmission = '\x04';
constexpr int kSignalMax = 64;
constexpr uint32_t kNothing = 0, kReadable = EPOLLIN, kWritable = EPOLLOUT;

winsize size_of(uint32_t rows, uint32_t columns) {
  winsize size{};
  size.ws_row = static_cast<uint16_t>(std::min<uint32_t>(rows, UINT16_MAX));
  size.ws_col = static_cast<uint16_t>(std::min<uint32_t>(columns, UINT16_MAX));
  return size;
}

bool has_zero_byte(std::string_view text) { return text.find('\0') != std::string_view::npos; }

/// The request for the keeper, or why the order cannot be carried out.
Result<shim::SessionRequest> request_of(const v1::OpenSession& order, const AttemptProcess& process,
                                        const SessionsOptions& options) {
  const AttemptKey key = from_wire(order.key());
  const Result<shim::Credentials> identity = identity_of(key, process, options.data_folder);
  if (!identity) return identity.error();
  const auto kind =
      order.port() > 0 ? shim::SessionRequest::Kind::kPort : shim::SessionRequest::Kind::kCommand;
  shim::SessionRequest request{.kind = kind,
                               .target = process.pid,
                               .title = shim::shim_title(to_string(key), options.instance),
                               .identity = *identity,
                               .terminal = order.terminal()};
  if (order.port() > UINT16_MAX)
    return Error{.code = ErrorCode::kInvalidArgument, .message = "a port is from 1 to 65535"};
  request.port = order.port();
  request.arguments.assign(order.command().begin(), order.command().end());
  if (order.terminal())
    request.environment.push_back("TERM=" + (order.term().empty() ? "xterm" : order.term()));
  bool good = true;
  std::size_t bytes = 0;
  for (const auto& [name, value] : order.environment()) {
    good = good && !name.empty() && name.find('=') == std::string::npos;
    request.environment.push_back(name + "=" + value);
  }
  for (const auto* words : {&request.arguments, &request.environment}) {
    for (const std::string& word : *words) {
      good = good && !has_zero_byte(word);
      bytes += word.size() + 1;
    }
  }
  if (!request.arguments.empty()) good = good && !request.arguments.front().empty();
  if (good && bytes <= limits::kSessionCommandBytesMax) return request;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message =
                   "the session's command and environment must have at most 128 KiB in total, no NUL bytes "
                   "and no empty names"};
}

}  // namespace

struct Sessions::Session {
  uint64_t number = 0;
  uint64_t serial = 0;
  AttemptKey key;
  bool of_port = false;
  bool output_ended_well = false;  ///< Of a port: its relay said so on its error output.
  bool port_end_passed_on = false;
  KeeperProcess keeper;
  OwnedDescriptor terminal;  ///< The master side; else the three pipes.
  OwnedDescriptor input, output, error_output;
  std::array<uint32_t, 4> watched = {};  ///< Events that epoll was asked for, by source.
  std::string pending;                   ///< Input that the command did not take yet.
  bool input_ended = false;
  int64_t credit = limits::kSessionCreditBytes;  ///< Bytes of output that may still be sent.
  int64_t credit_back = 0;                       ///< Bytes of input taken, not told yet.
  bool keeper_gone = false;
  bool attempt_over = false;
  Time say_end_at = kNever;  ///< It was killed: by the end of its attempt, which will be heard of soon?
  std::optional<v1::SessionOutput> end;  ///< The last message's words.

  int output_descriptor(bool of_stderr) const {
    if (terminal) return of_stderr ? -1 : terminal.get();
    return of_stderr ? error_output.get() : output.get();
  }
  int input_descriptor() const { return terminal ? terminal.get() : input.get(); }
  void close_output(bool of_stderr) {
    if (terminal) return terminal.reset();
    (of_stderr ? error_output : output).reset();
  }
  bool output_open() const { return terminal || output || error_output; }
};

namespace {

/// A pseudo terminal's two ends.
struct Terminal {
  OwnedDescriptor master, slave;
};

Result<Terminal> open_terminal(uint32_t rows, uint32_t columns) {
  Terminal terminal;
  terminal.master = OwnedDescriptor(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, 64> name{};
  if (!terminal.master || grantpt(terminal.master.get()) != 0 || unlockpt(terminal.master.get()) != 0 ||
      ptsname_r(terminal.master.get(), name.data(), name.size()) != 0)
    return io_error("cannot open a pseudo terminal");
  terminal.slave = OwnedDescriptor(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!terminal.slave) return io_error("cannot open a pseudo terminal");
  termios modes{};
  if (tcgetattr(terminal.slave.get(), &modes) == 0) {
    modes.c_iflag |= IUTF8;
    tcsetattr(terminal.slave.get(), TCSANOW, &modes);
  }
  const winsize size = size_of(rows == 0 ? 24 : rows, columns == 0 ? 80 : columns);
  ioctl(terminal.master.get(), TIOCSWINSZ, &size);
  return terminal;
}

/// Ours does not block; theirs does.
Result<Unit> open_pipe(OwnedDescriptor& ours, OwnedDescriptor& theirs, bool we_write) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return io_error("cannot create a pipe");
  ours = OwnedDescriptor(ends[we_write ? 1 : 0]);
  theirs = OwnedDescriptor(ends[we_write ? 0 : 1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK | (we_write ? O_WRONLY : O_RDONLY));
  return Unit{};
}

}  // namespace

Sessions::Sessions(SessionsOptions options, const Clock& clock, NodeLink& link)
    : options_(std::move(options)),
      clock_(clock),
      link_(link),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      files_(options_.shim_program, options_.data_folder, options_.instance, clock, link) {
  CHECK(epoll_ >= 0);
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kFilesTag}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, files_.descriptor(), &interest);
}

Sessions::~Sessions() {
  end_all();
  close(epoll_);
}

// Orders.

void Sessions::open(const v1::OpenSession& order, const AttemptProcess& process) {
  if (sessions_.contains(order.session())) return;  // Said again.
  const AttemptKey key = from_wire(order.key());
  if (const std::string full = why_full(key, order.port() > 0); !full.empty())
    return refuse(order.session(), "session_limit", full);
  auto session = std::make_unique<Session>();
  session->of_port = order.port() > 0;
  session->number = order.session();
  session->serial = next_serial_++;
  session->key = key;
  if (const Result<Unit> started = start(*session, order, process); !started) {
    const bool wrong = started.error().code == ErrorCode::kInvalidArgument;
    return refuse(order.session(), wrong ? "invalid_argument" : "session_failed", started.error().message);
  }
  by_serial_[session->serial] = session->number;
  Session& added = *(sessions_[order.session()] = std::move(session));
  update_interest(added);
  log_event(LogLevel::kInfo, "agent", "session_started", {.id = key.job},
            {{"session", added.number},
             {"attempt", key.attempt},
             {"terminal", order.terminal()},
             {"port", order.port()}});
}

/// Commands and ports are counted apart: a page that opens many connections shall not keep its owner out.
std::string Sessions::why_full(const AttemptKey& key, bool of_port) const {
  int64_t of_job = 0;
  int64_t of_node = 0;
  for (const auto& [number, session] : sessions_) {
    if (session->of_port != of_port) continue;
    of_node += 1;
    of_job += session->key.job == key.job ? 1 : 0;
  }
  const int64_t job_max = of_port ? limits::kPortStreamsPerJobMax : limits::kSessionsPerJobMax;
  const int64_t node_max = of_port ? limits::kPortStreamsPerNodeMax : limits::kSessionsPerNodeMax;
  const std::string what = of_port ? " connections to ports" : " sessions";
  if (of_job >= job_max) {
    return "the job already has " + std::to_string(job_max) + what + ", the maximum; end one of them first";
  }
  if (of_node >= node_max) {
    return "the job's node already has " + std::to_string(node_max) + what +
           ", the maximum; end one of them, or try again later";
  }
  return "";
}

Result<Unit> Sessions::start(Session& session, const v1::OpenSession& order, const AttemptProcess& process) {
  const Result<shim::SessionRequest> request = request_of(order, process, options_);
  if (!request) return request.error();
  std::array<OwnedDescriptor, 3> theirs;
  StandardStreams streams{};
  if (order.terminal()) {
    Result<Terminal> terminal = open_terminal(order.rows(), order.columns());
    if (!terminal) return terminal.error();
    session.terminal = std::move(terminal->master);
    theirs[0] = std::move(terminal->slave);
    streams.fill(theirs[0].get());
  } else {
    const std::array<OwnedDescriptor*, 3> ours = {&session.input, &session.output, &session.error_output};
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (const Result<Unit> made = open_pipe(*ours[i], theirs[i], i == 0); !made) return made;
      streams[i] = theirs[i].get();
    }
  }
  Result<KeeperProcess> keeper = KeeperProcess::start(options_.shim_program, *request, streams);
  if (!keeper) return keeper.error();
  session.keeper = std::move(*keeper);
  return Unit{};
}

void Sessions::refuse(uint64_t number, const std::string& code, const std::string& sentence) {
  v1::AgentMessage message;
  v1::SessionOutput& output = *message.mutable_session_output();
  output.set_session(number);
  output.set_ended(true);
  output.set_code(code);
  output.set_error(clean_text(sentence, sentence.size()));
  link_.send(message);
}

void Sessions::input(const v1::SessionInput& input) {
  const auto found = sessions_.find(input.session());
  if (found == sessions_.end()) return;  // It has ended, which was said.
  Session& session = *found->second;
  if (input.close()) return forget(input.session());
  session.credit += std::clamp<int64_t>(input.credit(), 0, limits::kSessionCreditBytes);
  if (input.rows() > 0 && session.terminal) {
    const winsize size = size_of(input.rows(), input.columns());
    ioctl(session.terminal.get(), TIOCSWINSZ, &size);
  }
  if (input.signal() > 0 && input.signal() <= kSignalMax) {
    const pid_t group = session.terminal ? tcgetpgrp(session.terminal.get()) : 0;
    session.keeper.send({.kind = shim::SessionOrder::Kind::kSignal,
                         .signal = static_cast<int32_t>(input.signal()),
                         .group = std::max<pid_t>(group, 0)});
  }
  if (!session.input_ended) {
    const std::size_t room =
        static_cast<std::size_t>(limits::kSessionCreditBytes) * 2 - session.pending.size();
    session.pending.append(input.data(), 0, std::min(room, input.data().size()));
    session.input_ended = input.end_of_input();
    // A terminal has no end of input; a reader of lines takes this character as one.
    if (session.input_ended && session.terminal) session.pending.push_back(kEndOfTransmission);
    write_input(session);
  } else {
    consumed(session, input.data().size());
  }
  update_interest(session);
}

void Sessions::read_file(const v1::ReadFile& order, const AttemptProcess& process) {
  files_.read(order, process);
}

void Sessions::attempt_ended(const AttemptKey& key) {
  std::vector<uint64_t> over;
  for (const auto& [number, session] : sessions_) {
    if (session->key != key) continue;
    session->attempt_over = true;
    session->keeper.send({.kind = shim::SessionOrder::Kind::kKill});
    if (session->say_end_at != kNever) over.push_back(number);
  }
  for (const uint64_t number : over) finish_if_over(*sessions_.at(number));
}

void Sessions::end_all() {
  while (!sessions_.empty()) forget(sessions_.begin()->first);
  files_.end_all();
}

// Readiness.

void Sessions::pump() {
  std::array<epoll_event, kKeeperEventsMax> ready;
  const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[static_cast<std::size_t>(i)].data.u64;
    if (tag == kFilesTag) {
      files_.pump();
      continue;
    }
    const auto serial = by_serial_.find(tag >> kSourceBits);
    if (serial == by_serial_.end()) continue;
    on_ready(*sessions_.at(serial->second), static_cast<Source>(tag & ((1U << kSourceBits) - 1)));
  }
  std::vector<uint64_t> over;
  const Time now = clock_.monotonic();
  for (const auto& [number, session] : sessions_) {
    if (now >= session->say_end_at) over.push_back(number);
  }
  for (const uint64_t number : over) finish_if_over(*sessions_.at(number));
  ended_.reap();
  files_.tick();
}

Time Sessions::next_deadline() const {
  Time next = files_.next_deadline();
  if (!ended_.empty()) next = std::min(next, clock_.monotonic() + kReapPause);
  for (const auto& [number, session] : sessions_) next = std::min(next, session->say_end_at);
  return next;
}

void Sessions::on_ready(Session& session, Source source) {
  switch (source) {
    case Source::kKeeper:
      on_keeper(session);
      break;
    case Source::kOutput:
      // A terminal has one descriptor for both ways.
      if (session.terminal) write_input(session);
      read_output(session, false);
      break;
    case Source::kErrorOutput:
      read_output(session, true);
      break;
    case Source::kInput:
      write_input(session);
      break;
  }
  update_interest(session);
  finish_if_over(session);
}

void Sessions::on_keeper(Session& session) {
  while (!session.keeper_gone) {
    const auto event = session.keeper.receive(session.keeper_gone);
    if (!event) return;
    v1::SessionOutput output;
    switch (event->kind) {
      case shim::SessionEvent::Kind::kStarted:
        output.set_opened(true);
        send(session, std::move(output));
        break;
      case shim::SessionEvent::Kind::kFailed:
        output.set_code(event->code);
        output.set_error(clean_text(event->message, event->message.size()));
        session.end = std::move(output);
        break;
      case shim::SessionEvent::Kind::kExited:
        output.set_exit_code(event->exit_code);
        output.set_signal(event->signal);
        // With an exit code these are words for people, of a command that could not be started.
        output.set_error(clean_text(event->message, event->message.size()));
        session.end = std::move(output);
        break;
      case shim::SessionEvent::Kind::kData:
        break;
    }
  }
}

void Sessions::read_output(Session& session, bool of_stderr) {
  const int descriptor = session.output_descriptor(of_stderr);
  if (descriptor < 0 || session.credit <= 0) return;
  std::string data(static_cast<std::size_t>(std::min<int64_t>(session.credit, limits::kSessionPieceBytes)),
                   '\0');
  const ssize_t size = read(descriptor, data.data(), data.size());
  if (size < 0 && (errno == EINTR || (errno == EAGAIN && !session.keeper_gone))) return;
  // A terminal whose last process has closed it says EIO. Without a keeper nobody is left who would write.
  if (size <= 0) session.close_output(of_stderr);
  if (size > 0 && of_stderr && session.of_port) session.output_ended_well = true;
  if (size <= 0 || (of_stderr && session.of_port)) return pass_port_end_on(session);
  data.resize(static_cast<std::size_t>(size));
  session.credit -= size;
  v1::SessionOutput output;
  output.set_data(std::move(data));
  output.set_of_stderr(of_stderr);
  send(session, std::move(output));
}

/// A pipe also ends when the connection broke, which must not look like the end of a whole answer.
void Sessions::pass_port_end_on(Session& session) {
  if (!session.output_ended_well || session.output || std::exchange(session.port_end_passed_on, true)) return;
  v1::SessionOutput last;
  last.set_end_of_output(true);
  send(session, std::move(last));
}

void Sessions::write_input(Session& session) {
  while (!session.pending.empty()) {
    const int descriptor = session.input_descriptor();
    ssize_t size = -1;
    errno = EPIPE;
    if (descriptor >= 0) size = write(descriptor, session.pending.data(), session.pending.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (size < 0) {
      // The command reads no more: the rest goes nowhere, as in a shell's pipe.
      size = static_cast<ssize_t>(session.pending.size());
      session.input.reset();
    }
    session.pending.erase(0, static_cast<std::size_t>(size));
    consumed(session, static_cast<std::size_t>(size));
  }
  if (session.pending.empty() && session.input_ended) session.input.reset();
}

void Sessions::consumed(Session& session, std::size_t size) {
  session.credit_back += static_cast<int64_t>(size);
  if (session.credit_back < kCreditBack && !(session.pending.empty() && session.credit_back > 0)) return;
  v1::SessionOutput output;
  output.set_credit(std::exchange(session.credit_back, 0));
  send(session, std::move(output));
}

/// Only what can be done is watched: a descriptor without credit or without input would wake us for nothing.
void Sessions::update_interest(Session& session) {
  const bool may_read = session.credit > 0;
  const bool must_write = !session.pending.empty();
  watch(session, Source::kKeeper, session.keeper.socket(), session.keeper_gone ? kNothing : kReadable);
  uint32_t output = may_read && session.output_descriptor(false) >= 0 ? kReadable : kNothing;
  if (session.terminal && must_write) output |= kWritable;
  watch(session, Source::kOutput, session.output_descriptor(false), output);
  watch(session, Source::kErrorOutput, session.error_output.get(),
        may_read && session.error_output ? kReadable : kNothing);
  watch(session, Source::kInput, session.input.get(), must_write && session.input ? kWritable : kNothing);
}

void Sessions::watch(Session& session, Source source, int descriptor, uint32_t events) {
  const auto index = static_cast<std::size_t>(source);
  const uint32_t before = std::exchange(session.watched[index], events);
  if (before == events || descriptor < 0) return;  // A closed one is watched no more.
  epoll_event interest{.events = events,
                       .data = {.u64 = (session.serial << kSourceBits) | static_cast<uint64_t>(index)}};
  const int action = events == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  epoll_ctl(epoll_, action, descriptor, &interest);
}

void Sessions::finish_if_over(Session& session) {
  if (!session.keeper_gone) return;
  // All processes are gone, so that what the pipes hold is all that there is.
  while (session.output_open() && session.credit > 0 && session.end && session.end->code().empty()) {
    read_output(session, false);
    read_output(session, true);
  }
  const bool output_left = session.output_open() && session.end && session.end->code().empty();
  if (output_left) return update_interest(session);
  v1::SessionOutput last = session.end.value_or(v1::SessionOutput());
  // An event that ends the attempt's control group ends the session too, and is heard of by another way.
  const Time now = clock_.monotonic();
  if (last.signal() == SIGKILL && !session.attempt_over) {
    if (session.say_end_at == kNever) session.say_end_at = now + kKilledPatience;
    if (now < session.say_end_at) return;
  }
  if (!session.end) {
    last.set_code("session_failed");
    last.set_error("the node ended the session");
  }
  if (session.attempt_over && (!session.end || last.signal() == SIGKILL)) {
    last.set_code("job_not_running");
    last.set_error("the job's attempt has ended, and its sessions with it");
  }
  last.set_ended(true);
  log_event(LogLevel::kInfo, "agent", "session_ended", {.id = session.key.job},
            {{"session", session.number}, {"exit_code", last.exit_code()}, {"error", last.error()}});
  send(session, std::move(last));
  forget(session.number);
}

void Sessions::forget(uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  ended_.add(found->second->keeper.pid());
  by_serial_.erase(found->second->serial);
  sessions_.erase(found);  // Closing the keeper's socket ends what is left.
}

void Sessions::send(const Session& session, v1::SessionOutput output) {
  v1::AgentMessage message;
  output.set_session(session.number);
  *message.mutable_session_output() = std::move(output);
  link_.send(message);
}

}  // namespace gpusched
