#pragma once

#include <functional>
#include <thread>

#include "base/time.h"
#include "config/config.h"
#include "main/serve.h"
#include "ops/notify.h"

namespace gpusched {

/// The signal by which this process tells itself that its place among several schedulers changed.
int place_signal();
/// Sends it. Any thread.
void tell_place_changed();

/// Blocks SIGINT, SIGTERM, SIGHUP and place_signal() in this thread and those started after;
/// `wait_for_signal` takes them. SIGPIPE is ignored.
void block_signals();
/// SIGINT, SIGTERM, SIGHUP or place_signal() when one comes; 0 after `patience` without any. Zero: as long as
/// it takes.
int wait_for_signal(Duration patience = {});

/// While one lives, SIGINT and SIGTERM end the process at once: a start or an end that hangs is no reason to
/// need SIGKILL, and nothing acknowledged is lost by it. The signals must be blocked, and nobody else may
/// wait for them meanwhile.
class EndsOnSignal {
 public:
  EndsOnSignal();
  ~EndsOnSignal();
  EndsOnSignal(const EndsOnSignal&) = delete;
  EndsOnSignal& operator=(const EndsOnSignal&) = delete;

 private:
  std::thread thread_;
};

/// Serves until SIGINT, SIGTERM or place_signal(), whose number it returns. Meanwhile tells the service
/// manager that the service lives, as long as its loops go round, has an old certificate renewed, and calls
/// `reload` on SIGHUP: its result is one line for people.
int supervise(Service& service, const ServiceNotifier& manager, const std::function<std::string()>& reload,
              Duration renew_every = hours(1));

/// Logs a warning that names the keys that were given and have no effect, if there are any.
void warn_of_keys_without_effect(const LoadedConfig& config);

/// Inputs and memory of a reload.
class Reloader {
 public:
  /// `inputs` are those of the start, `running` what they gave.
  Reloader(ConfigInputs inputs, Config running) : inputs_(std::move(inputs)), running_(std::move(running)) {}
  /// Reads the configuration again, logs what differs and hands `service` what is live. When anything is
  /// wrong all of the old stays, and the log says why. Returns one line that says how it went.
  std::string reload(Service& service);

 private:
  ConfigInputs inputs_;
  Config running_;  ///< Values as read last, also of keys that need a restart, so that each is told once.
};

}  // namespace gpusched
