// Agent: its loop, and what it does with what comes in.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "log/log.h"
#include "node/agent/agent.h"
#include "node/link/order_gate.h"
#include "ops/local_peer.h"
#include "sign/keys/order_key.h"

namespace gpusched {
namespace {

constexpr Duration kKernelLogPause = milliseconds(500);
constexpr Duration kRefusedPause = seconds(30);

/// No try will be taken until a person did something: trying seldom is enough.
bool is_for_an_operator(const std::string& code) {
  return code == "node_name_taken" || code == "node_overlap" || code == "wrong_cluster" ||
         code == "node_revoked";
}

}  // namespace

void Agent::read_kernel_log(Time now) {
  if (kernel_log_ == nullptr || now < next_log_read_) return;
  next_log_read_ = now + kKernelLogPause;
  const std::vector<XidLine> lines = kernel_log_->take();
  for (const XidLine& line : lines) core_->on_xid(line.pci, line.xid, line.text);
  if (!lines.empty()) core_->set_log_position(kernel_log_->position());
}

void Agent::add_source(int descriptor) {
  epoll_event interest{.events = EPOLLIN, .data = {.fd = descriptor}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &interest);
}

// The loop.

void Agent::run(int stop_descriptor, AgentDuties duties) {
  duties_ = std::move(duties);
  if (duties_.pulse_every.ns > 0) pulse_due_ = clock_.monotonic();
  for (const int source : {stop_descriptor, duties_.reload_descriptor}) {
    if (source >= 0) add_source(source);
  }
  while (true) {
    std::array<epoll_event, 16> ready;
    const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), wait_ms());
    bool stopping = false;
    bool reload = false;
    for (int i = 0; i < count; ++i) {
      const int source = ready[static_cast<std::size_t>(i)].data.fd;
      stopping = stopping || source == stop_event_ || source == stop_descriptor;
      reload = reload || source == duties_.reload_descriptor;
    }
    if (stopping) break;
    turn();
    do_duties(reload);
  }
  link_->disconnect();
  core_->on_link_down();
  core_->settle();
  log_event(LogLevel::kInfo, "agent", "agent_stopped", {}, {{"running", core_->running_count()}});
}

void Agent::do_duties(bool reload) {
  if (reload && duties_.reload) duties_.reload();
  const Time now = clock_.monotonic();
  if (now < pulse_due_) return;
  pulse_due_ = now + duties_.pulse_every;
  if (duties_.pulse) duties_.pulse();
}

void Agent::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(stop_event_, &one, sizeof one);
}

int Agent::wait_ms() const {
  const Time due = std::min({core_->next_deadline(), workers_->next_deadline(), sessions_->next_deadline(),
                             connection_due_, pulse_due_});
  const Duration left = due - clock_.monotonic();
  if (due == kNever) return -1;
  return static_cast<int>(std::clamp<int64_t>((left.ns + 999'999) / 1'000'000, 0, INT_MAX));
}

/// Everything is cheap to ask when it has nothing, so that a turn looks at all of it.
void Agent::turn() {
  take_link_inputs();
  workers_->pump();
  sessions_->pump();
  uint64_t count = 0;
  if (read(log_->synced_event(), &count, sizeof count) == sizeof count)
    core_->on_synced(log_->synced_position());
  for (DeviceMonitor::Finished& finished : monitor_->take_finished()) on_device_finished(std::move(finished));
  for (const ScriptHooks::Finished& finished : hooks_->take_finished()) on_hook_finished(finished);
  for (v1::LogChunk& chunk : files_->take_chunks()) core_->on_output(std::move(chunk));
  const Time now = clock_.monotonic();
  read_kernel_log(now);
  // The stream may look open for ever while nobody reads it: another one is the only way to find out.
  if (connection_ == Connection::kUp && core_->is_unanswered(now))
    on_connection_lost("the scheduler answers no heartbeat on this connection");
  if (now >= core_->next_deadline()) core_->on_tick();
  if (now >= connection_due_) try_to_connect(now);
  renew_certificate();
  core_->settle();
  if (metrics_ != nullptr) metrics_->note(*core_, now);
}

void Agent::on_device_finished(DeviceMonitor::Finished finished) {
  switch (finished.kind) {
    case DeviceMonitor::Finished::Kind::kReading:
      return core_->on_reading(finished.index, std::move(finished.reading));
    case DeviceMonitor::Finished::Kind::kMade:
      return core_->on_slice_made(finished.index, finished.profile, finished.start, finished.made,
                                  finished.problem);
    case DeviceMonitor::Finished::Kind::kDestroyed:
      return core_->on_slice_destroyed(finished.index, finished.profile, finished.start, finished.problem);
  }
}

void Agent::on_hook_finished(const ScriptHooks::Finished& finished) {
  switch (finished.kind) {
    case ScriptHooks::Finished::Kind::kProlog:
      return core_->on_prolog_done(finished.key, finished.problem);
    case ScriptHooks::Finished::Kind::kEpilog:
      return core_->on_epilog_done(finished.key, finished.problem);
    case ScriptHooks::Finished::Kind::kCheck:
      return core_->on_checked(finished.problem);
    case ScriptHooks::Finished::Kind::kReset:
      return core_->on_device_reset(finished.device, finished.problem);
  }
}

/// The abilities of this node, for placement and for people.
std::vector<std::string> Agent::features() const {
  std::vector<std::string> known = containers_->support.features;
  if (hooks_->can_reboot()) known.emplace_back("reboot");
  return known;
}

// The scheduler.

void Agent::take_link_inputs() {
  for (GrpcLink::Input& input : link_->take()) {
    switch (input.kind) {
      case GrpcLink::Input::Kind::kUp:
        connection_ = Connection::kUp;
        core_->on_link_up();
        break;
      case GrpcLink::Input::Kind::kMessage:
        if (input.message.has_refused()) return on_refused(input.message.refused());
        if (const Result<Unit> leads = check_term(input.message); !leads)
          return on_connection_lost(leads.error().message);
        if (take_certificate(input.message)) break;
        if (input.message.has_registered()) {
          remember_scheduler(input.message.registered());
          note_registered();
        }
        core_->on_message(input.message);
        break;
      case GrpcLink::Input::Kind::kNotObeyed:
        if (input.message.has_registered()) note_registered();
        core_->on_not_obeyed(input.message, input.why);
        break;
      case GrpcLink::Input::Kind::kDown:
        return on_connection_lost(input.why);
    }
  }
}

/// A message that was signed for this node is known to be the scheduler's, and so is what it says of its
/// term.
Result<Unit> Agent::check_term(const v1::SchedulerMessage& message) {
  if (needs_no_signature(message)) return Unit{};
  return fence_->admit(message.term());
}

void Agent::note_registered() {
  connection_due_ = kNever;
  schedulers_->succeeded();
  troubles_.clear();
  const std::string& scheduler = schedulers_->current().text;
  if (schedulers_->all().size() > 1)
    log_event(LogLevel::kInfo, "agent", "scheduler_found", {}, {{"scheduler", scheduler}});
  if (duties_.status) duties_.status("connected to " + scheduler);
}

bool Agent::take_certificate(const v1::SchedulerMessage& message) {
  if (!message.has_renewed() && !message.has_not_renewed()) return false;
  if (!renewal_) return true;
  Result<Unit> taken = Unit{};
  if (message.has_renewed() && message.renewed().certificates().empty()) {
    take_order_keys(message.renewed().order_key());
    return true;
  }
  if (message.has_renewed()) {
    taken = renewal_->take(message.renewed());
  } else {
    renewal_->refused();
    taken = Error{.code = ErrorCode::kUnavailable, .message = message.not_renewed().message()};
  }
  if (taken) {
    log_event(LogLevel::kInfo, "agent", "certificate_renewed", {}, {{"file", options_.tls.identity}});
  } else {
    log_event(LogLevel::kWarning, "agent", "certificate_not_renewed", {}, {{"why", taken.error().message}});
  }
  return true;
}

/// Unasked: the scheduler changes the key that it signs with. They count from the next connection on.
void Agent::take_order_keys(const std::string& keys) {
  const Result<bool> taken = renewal_->take_order_keys(keys);
  if (!taken) {
    log_event(LogLevel::kError, "agent", "order_keys_not_kept", {}, {{"why", taken.error().message}});
  } else if (*taken) {
    log_event(LogLevel::kInfo, "agent", "order_keys_changed", {},
              {{"file", options_.tls.identity}, {"keys", keys.size() / sign::kOrderKeyBytes}});
  }
}

/// By whoever has a connection: the next one shows the new certificate.
void Agent::renew_certificate() {
  if (!renewal_ || connection_ != Connection::kUp) return;
  const int64_t now_s = clock_.wall().ns / seconds(1).ns;
  if (!renewal_->is_due(now_s)) return;
  const Result<std::string> request = renewal_->request(now_s);
  if (!request) return;
  v1::AgentMessage message;
  message.mutable_renew()->set_request(*request);
  link_->send(message);
}

/// Remembers whose node this is. Another cluster's scheduler would end all that runs here.
void Agent::remember_scheduler(const v1::Registered& registered) {
  if (registered.cluster().empty() || !identity_.cluster.empty()) return;
  if (const Result<Unit> kept = remember_cluster(options_.data_folder, identity_, registered.cluster());
      !kept)
    log_event(LogLevel::kWarning, "agent", "cluster_not_kept", {}, {{"why", kept.error().message}});
}

void Agent::on_refused(const v1::Refused& refused) {
  on_connection_lost("refused: " + refused.message() + " (" + refused.code() + ")");
  if (!is_for_an_operator(refused.code())) return;
  connection_due_ = clock_.monotonic() + kRefusedPause;
  log_event(LogLevel::kError, "agent", "registration_refused", {},
            {{"node", options_.node_name},
             {"code", refused.code()},
             {"why", refused.message()},
             {"next_try_s", kRefusedPause.ms() / 1'000}});
}

void Agent::on_connection_lost(const std::string& why) {
  const std::string& scheduler = schedulers_->current().text;
  if (std::string& known = troubles_[scheduler]; known != why) {
    known = why;
    log_event(LogLevel::kWarning, "agent", "scheduler_unreachable", {},
              {{"scheduler", scheduler}, {"why", why}, {"running", core_->running_count()}});
    if (duties_.status) duties_.status("no connection to " + scheduler + ": " + why);
  }
  link_->disconnect();
  if (connection_ == Connection::kUp) core_->on_link_down();
  connection_ = Connection::kWaiting;
  connection_due_ = clock_.monotonic() + schedulers_->failed();
}

void Agent::try_to_connect(Time now) {
  const Duration patience = schedulers_->patience();
  if (connection_ != Connection::kWaiting) {
    return on_connection_lost("the scheduler did not answer within " + std::to_string(patience.ms() / 1'000) +
                              " s");
  }
  // Another process may listen there than at the start.
  if (const Result<Unit> trusted = check_scheduler(schedulers_->current()); !trusted)
    return on_connection_lost(trusted.error().message);
  connection_ = Connection::kConnecting;
  connection_due_ = now + patience;
  link_->connect(schedulers_->current().text);
}

void Agent::on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  core_->on_shim_started(key, pid, started_unix_ns);
}
void Agent::on_shim_prepared(const AttemptKey& key) { core_->on_shim_prepared(key); }
void Agent::on_shim_saved(const AttemptKey& key, int64_t unix_ns) { core_->on_shim_saved(key, unix_ns); }
void Agent::on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) {
  core_->on_shim_ended(key, outcome);
}
void Agent::on_shim_lost(const AttemptKey& key, const std::string& detail) {
  core_->on_shim_lost(key, detail);
}
void Agent::on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  core_->on_shim_found(key, pid, started_unix_ns);
}

}  // namespace gpusched
