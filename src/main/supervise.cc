#include "main/supervise.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "config/keys.h"
#include "log/log.h"

namespace gpusched {
namespace {

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, place_signal()}) sigaddset(&set, signal);
  return set;
}

/// Feeds the manager's watchdog only with answers of the service's own loops.
class Pulse {
 public:
  explicit Pulse(const ServiceNotifier& manager) : manager_(manager) {}

  void beat(Service& service) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds every(manager_.keep_alive_every().ns);
    if (!answered_->load()) {
      if (now - asked_at_ >= every && !std::exchange(silent_, true)) {
        log_event(LogLevel::kError, "scheduler", "loop_silent", {},
                  {{"for_ms", manager_.keep_alive_every().ms()}});
        manager_.status("a thread makes no progress; the service manager will restart the scheduler");
      }
      return;
    }
    silent_ = false;
    manager_.keep_alive();
    answered_->store(false);
    asked_at_ = now;
    service.touch([answered = answered_] { answered->store(true); });
  }

 private:
  const ServiceNotifier& manager_;
  std::shared_ptr<std::atomic<bool>> answered_ = std::make_shared<std::atomic<bool>>(true);
  std::chrono::steady_clock::time_point asked_at_{};
  bool silent_ = false;
};

std::string serving(const BoundPorts& ports) {
  return "serving REST on port " + std::to_string(ports.http) + ", gRPC on " + std::to_string(ports.grpc);
}

}  // namespace

// Behind SIGRTMIN, which ends EndsOnSignal.
int place_signal() { return SIGRTMIN + 1; }

void tell_place_changed() { ::kill(::getpid(), place_signal()); }

void block_signals() {
  const sigset_t set = awaited_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int wait_for_signal(Duration patience) {
  const sigset_t set = awaited_signals();
  const timespec wait{.tv_sec = patience.ns / 1'000'000'000, .tv_nsec = patience.ns % 1'000'000'000};
  while (true) {
    const int taken = patience.ns > 0 ? sigtimedwait(&set, nullptr, &wait) : sigwaitinfo(&set, nullptr);
    if (taken > 0) return taken;
    if (errno == EAGAIN) return 0;
  }
}

EndsOnSignal::EndsOnSignal() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGRTMIN}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // The thread has it from us, before the first can come.
  thread_ = std::thread([set] {
    int taken = -1;
    while (taken < 0) taken = sigwaitinfo(&set, nullptr);
    if (taken == SIGRTMIN) return;  // Over without one.
    std::fprintf(stderr, "gpu-scheduler: killed by signal %d\n", taken);
    std::_Exit(128 + taken);
  });
}

EndsOnSignal::~EndsOnSignal() {
  // Pending until the thread waits for it, or taken at once.
  pthread_kill(thread_.native_handle(), SIGRTMIN);
  thread_.join();
}

int supervise(Service& service, const ServiceNotifier& manager, const std::function<std::string()>& reload,
              Duration renew_every) {
  manager.ready(serving(service.ports()));
  Pulse pulse(manager);
  const Duration beat = manager.keep_alive_every();
  auto renewed_at = std::chrono::steady_clock::now();
  while (true) {
    if (beat.ns > 0) pulse.beat(service);
    const int signal = wait_for_signal(beat.ns > 0 ? std::min(beat, renew_every) : renew_every);
    if (const auto now = std::chrono::steady_clock::now();
        now - renewed_at >= std::chrono::nanoseconds(renew_every.ns)) {
      renewed_at = now;
      service.renew_certificate();
    }
    if (signal == SIGHUP) {
      manager.reloading();
      const std::string outcome = reload();
      manager.ready(serving(service.ports()) + "; " + outcome);
    } else if (signal != 0) {
      if (signal != place_signal()) manager.stopping();
      return signal;
    }
  }
}

void warn_of_keys_without_effect(const LoadedConfig& config) {
  const std::string keys = keys_without_effect(config);
  if (keys.empty()) return;
  log_event(LogLevel::kWarning, "scheduler", "config_without_effect", {},
            {{"keys", keys},
             {"message", "these keys of the configuration have no effect; they may be kept or removed"}});
}

std::string Reloader::reload(Service& service) {
  const auto refused = [&service](const Error& error) {
    service.note_reload(false);
    log_event(LogLevel::kError, "scheduler", "config_not_reloaded", {},
              {{"why", error.message}, {"kept", "the whole old configuration"}});
    return "the new configuration was rejected and the old one stays in effect: " + error.message;
  };
  service.reopen_audit();  // Always done: somebody may have renamed the file.
  const Result<LoadedConfig> loaded = load_config(inputs_);
  if (!loaded.ok()) return refused(loaded.error());
  const Config& fresh = loaded->values;
  const Result<LogLevel> level = parse_log_level(fresh.log.level);
  if (!level.ok()) return refused(level.error());
  // The log first: it can fail, and then nothing has changed.
  const Result<Unit> log = log_reopen({.path = fresh.log.path, .level = *level});
  if (!log.ok()) return refused(log.error());
  const Result<Unit> taken = service.reconfigure(fresh);
  if (!taken.ok()) return refused(taken.error());
  service.note_reload(true);

  const std::vector<ConfigChange> changes = config_changes(running_, fresh);
  std::string restart;
  for (const ConfigChange& change : changes) {
    const std::string name = change.key->full_name();
    const bool has_effect = change.key->effect != ConfigEffect::kNone;
    if (has_effect && !change.key->live) restart += (restart.empty() ? "" : ", ") + name;
    log_event(LogLevel::kInfo, "scheduler", "config_changed", {},
              {{"key", name},
               {"old", change.before},
               {"new", change.after},
               {"holds", !has_effect        ? "never: it has no effect"
                         : change.key->live ? "now"
                                            : "after a restart"}});
  }
  running_ = fresh;
  warn_of_keys_without_effect(*loaded);
  log_event(LogLevel::kInfo, "scheduler", "config_reloaded", {},
            {{"changes", changes.size()}, {"needs_restart", restart}});
  if (!restart.empty()) return "a restart is needed for " + restart;
  return changes.empty() ? "reloaded, no changes" : "reloaded";
}

}  // namespace gpusched
