#pragma once

#include <string>
#include <string_view>

#include "base/time.h"

namespace gpusched {

/// Tells a service manager how a daemon fares: systemd's notification protocol (sd_notify(3)), one datagram a
/// word. Without a manager every call does nothing. Thread-safe once made.
class ServiceNotifier {
 public:
  /// Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID and removes them, so that no job inherits them.
  /// Call it before the first thread is started.
  static ServiceNotifier take_from_environment();
  /// `address`: a socket's path, or '@' and an abstract name; empty: nobody listens. `watchdog`: within which
  /// time `keep_alive` must be called; zero: never.
  ServiceNotifier(std::string address, Duration watchdog);

  /// Whether anybody listens.
  bool active() const { return !address_.empty(); }
  /// Returns the interval of `keep_alive`: half of what the manager allows. Zero: none expected.
  Duration keep_alive_every() const { return {watchdog_.ns / 2}; }

  void ready(std::string_view status) const;
  /// Announces a reload; `ready` ends it.
  void reloading() const;
  void stopping() const;
  void status(std::string_view status) const;
  void keep_alive() const;

 private:
  void send(std::string_view words) const;

  std::string address_;
  Duration watchdog_;
};

}  // namespace gpusched
