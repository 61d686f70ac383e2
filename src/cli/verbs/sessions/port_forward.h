#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/framework/session.h"
#include "cli/verbs/sessions/port_connection.h"
#include "cli/verbs/sessions/port_listeners.h"

namespace gpusched::cli {

/// A port of this machine, and the port inside the job that it stands for.
struct ForwardedPort {
  uint16_t local = 0;  ///< 0: any free one.
  uint16_t remote = 0;

  friend bool operator==(const ForwardedPort&, const ForwardedPort&) = default;
};

/// Reads "8888", "8080:80" and ":80". Errors: kInvalidArgument with a sentence.
Result<ForwardedPort> parse_forwarded_port(const std::string& text);

struct PortForward {
  std::string job;
  int64_t member = 0;
  std::vector<uint16_t> remote = {};  ///< Ports inside the job, one for each listener.
  /// Called when the stop sign was set before the job's end was seen; it must end the process, whose other
  /// thread waits for the scheduler with nothing that must be finished.
  std::function<void()> on_stopped = {};
};

/// Forwards connections of the listeners until the job has ended or `stop` is set; then breaks those that are
/// left. Returns the job's last record, or why it cannot be looked at any more.
Reply forward_ports(Session& session, const PortForward& forward, const PortListeners& listeners,
                    const StopSign& stop);

}  // namespace gpusched::cli
