// gpu-cli port-forward: ports inside a running job, on this machine.
#include "cli/verbs/sessions/port_forward.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/signal_watch.h"
#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

constexpr int kForwardSignalBase = 128;
constexpr Duration kJobLook = seconds(20);
constexpr Duration kNoDescriptorPause = milliseconds(200);
constexpr const char* kLoopback = "127.0.0.1";

/// The threads of connections, each joined once it has ended.
class ConnectionThreads {
 public:
  explicit ConnectionThreads(PortJob& job) : job_(job) {}
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;
  ~ConnectionThreads() {
    for (One& one : all_) one.thread.join();
  }

  void add(const Session& session, int local, uint16_t remote) {
    all_.remove_if([](One& one) {
      if (!one.over->load()) return false;
      one.thread.join();
      return true;
    });
    auto over = std::make_shared<std::atomic<bool>>(false);
    all_.push_back({.thread = std::thread([this, own = session.fork(), local, remote, over]() mutable {
                      carry_connection(job_, std::move(own), local, remote);
                      over->store(true);
                    }),
                    .over = over});
  }

 private:
  struct One {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> over;
  };
  PortJob& job_;
  std::list<One> all_;
};

/// Takes connections until the stop sign is set.
void accept_all(const Session& session, PortJob& job, const PortForward& forward,
                const PortListeners& listeners) {
  ConnectionThreads connections(job);
  std::vector<pollfd> sources = {{.fd = job.stop().descriptor(), .events = POLLIN, .revents = 0}};
  for (const int socket : listeners.sockets())
    sources.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  while (sources[0].revents == 0) {
    if (::poll(sources.data(), sources.size(), -1) < 0) continue;
    for (std::size_t i = 1; i < sources.size(); ++i) {
      if (sources[i].revents == 0) continue;
      const int local = ::accept4(sources[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (local < 0) {
        if (errno == EMFILE || errno == ENFILE) session.io().pause(kNoDescriptorPause);
        continue;
      }
      const int one = 1;  // A key that is pressed shall not wait for the next one.
      ::setsockopt(local, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      connections.add(session, local, forward.remote[i - 1]);
    }
  }
}

/// Looks at the job until it is final or the stop sign is set; its last record.
Reply watch_job(Session& session, const std::string& job, const StopSign& stop) {
  Patience patience(session.io());
  while (!stop.is_set()) {
    Reply record = poll_job(session, job, kJobLook);
    if (record && is_final(record.json)) return record;
    if (!record && !(record.trouble->passing && patience.wait_again())) return record;
    if (record) patience.renew();
  }
  return {};
}

std::optional<uint16_t> port_number(std::string_view text) {
  uint16_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct PortForwardOptions {
  std::string job;
  int64_t member = 0;
  std::string address = kLoopback;
  std::vector<std::string> ports;
};

void say_ready(const Session& session, const PortForward& forward, const PortListeners& listeners) {
  if (session.options().json) {
    std::string ports;
    for (std::size_t i = 0; i < listeners.ports().size(); ++i) {
      JsonObjectWriter port;
      port.add("local", listeners.places()[i]);
      port.add("port", int64_t{forward.remote[i]});
      ports += (i == 0 ? "" : ",") + port.text();
    }
    JsonObjectWriter json;
    json.add("job_id", forward.job);
    json.add_json("ports", "[" + ports + "]");
    session.io().out(json.text() + "\n");
    return;
  }
  for (std::size_t i = 0; i < listeners.ports().size(); ++i) {
    session.io().err("gpu-cli: " + listeners.places()[i] + " is port " + std::to_string(forward.remote[i]) +
                     " of " + forward.job + "; Ctrl-C ends it\n");
  }
}

int port_forward(Session& session, const PortForwardOptions& options) {
  PortForward forward{.job = options.job, .member = options.member};
  PortListeners listeners;
  std::vector<ForwardedPort> ports;
  for (const std::string& text : options.ports) {
    const Result<ForwardedPort> port = parse_forwarded_port(text);
    if (!port) return session.fail(kExitUsage, port.error().message, "usage");
    ports.push_back(*port);
  }
  for (const ForwardedPort& port : ports) {
    forward.remote.push_back(port.remote);
    const Result<Unit> added = listeners.add(options.address, port.local);
    if (added) continue;
    if (added.error().code == ErrorCode::kInvalidArgument)
      return session.fail(kExitUsage, "--address: " + added.error().message, "usage");
    return session.fail(kExitRefused, added.error().message, "port_in_use");
  }
  const StopSign stop;
  std::atomic<bool> ready{false};
  const SignalWatch watch({SIGINT, SIGTERM, SIGHUP}, [&](int signal) {
    // It still waits for the job, or was asked before.
    if (!ready || stop.is_set()) ::_exit(kForwardSignalBase + signal);
    stop.set();
  });
  forward.on_stopped = [&] {
    session.io().err("\ngpu-cli: the forward has ended; " + options.job + " continues\n");
    ::_exit(kExitOk);
  };
  const Reply record = wait_until_running(session, options.job);
  if (!record) return session.fail(*record.trouble);
  if (is_final(record.json)) {
    return session.fail(kExitRefused,
                        end_sentence(options.job, record.json) + "; a forward needs a running job",
                        "job_not_running");
  }
  if (is_held(record.json)) {
    return session.fail(kExitHeld, options.job + " is held; a forward needs a running job", "held");
  }
  say_ready(session, forward, listeners);
  ready = true;
  const Reply end = forward_ports(session, forward, listeners, stop);
  if (!end) return session.fail(*end.trouble);
  session.io().err("gpu-cli: " + printable(end_sentence(options.job, end.json)) +
                   ", and the forward with it\n");
  return kExitOk;
}

}  // namespace

Result<ForwardedPort> parse_forwarded_port(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string_view view(text);
  const std::string_view first = view.substr(0, colon);
  const std::string_view second = colon == std::string::npos ? first : view.substr(colon + 1);
  const std::optional<uint16_t> local = first.empty() && colon == 0 ? 0 : port_number(first);
  const std::optional<uint16_t> remote = port_number(second);
  if (local && remote && *remote != 0 && (colon != std::string::npos || *local != 0))
    return ForwardedPort{.local = *local, .remote = *remote};
  return Error{
      .code = ErrorCode::kInvalidArgument,
      .message = "'" + printable(text) +
                 "' names no port: give the job's port, as in 8888, or one of this machine before it, "
                 "as in 8080:80 (:80 takes a free one)"};
}

Reply forward_ports(Session& session, const PortForward& forward, const PortListeners& listeners,
                    const StopSign& stop) {
  CHECK(forward.remote.size() == listeners.sockets().size());
  PortJob job(session.io(), forward.job, forward.member, stop);
  Reply end;
  std::atomic<bool> seen{false};
  std::thread looking([&, own = session.fork()]() mutable {
    end = watch_job(own, forward.job, stop);
    if (stop.is_set()) return;
    seen = true;
    stop.set();
  });
  accept_all(session, job, forward, listeners);
  if (!seen && forward.on_stopped) forward.on_stopped();
  looking.join();
  return end;
}

Action define_port_forward(Grammar& grammar) {
  const auto options = std::make_shared<PortForwardOptions>();
  grammar.argument("JOB", &options->job, "Job id").completes(Complete::kJob);
  grammar.argument("PORT", &options->ports,
                   "The job's port, or LOCAL:PORT with a port of this machine before it");
  grammar.option("--address", "ADDRESS", &options->address,
                 "Address of this machine to listen on (default: 127.0.0.1)");
  grammar.option("--member", "N", &options->member, "Member of a gang, counted from 0").range(0, 1'000'000);
  grammar.details(
      "Listens on this machine's loopback, and carries each connection through the scheduler to the port on "
      "the loopback of the job's network, as the job's user. Several ports and many connections at once are "
      "possible, up to 64 of one job. It waits for a job that has not started, goes on over retries, and "
      "ends with the job, or with Ctrl-C; the job is not affected. With --json it prints one object when the "
      "ports can be connected to.");
  grammar.details(
      "The scheduler lets in whoever may use gpu-cli exec in the job. On this machine every user can connect "
      "to the local port, and with --address every machine that reaches the address: have the program in the "
      "job ask for a password or a token.");
  grammar.example("gpu-cli port-forward job-12 8888", "the notebook of job-12 at http://127.0.0.1:8888");
  grammar.example("gpu-cli port-forward job-12 8080:80 :6006",
                  "port 80 at 8080, and port 6006 at a free one");
  return [options](Session& session) { return port_forward(session, *options); };
}

}  // namespace gpusched::cli
