#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

/// A service replica's request for a port, as one line of text: in the environment that the agent gives the
/// attempt's shim, and in the file where the shim notes which port it took. Pure functions.
namespace gpusched {

/// How it is found out whether a replica can be used.
struct ReadyProbe {
  std::string path = {};  ///< Path of an HTTP request; empty: an accepted TCP connection is enough.
  Duration period = seconds(2);
  Duration timeout = seconds(1);
  int64_t failures = 3;  ///< Failures in a row that make a ready replica unready.

  friend bool operator==(const ReadyProbe&, const ReadyProbe&) = default;
};
/// "tcp" or "http:/PATH", with the other fields as they are by default. Nothing: it is neither, or the path
/// is longer than 200 bytes or has others than visible ASCII.
std::optional<ReadyProbe> parse_ready_probe(std::string_view text);

/// As parse_ready_probe reads it.
std::string to_string(const ReadyProbe& probe);

struct PortRange {
  uint32_t first = 10'000, last = 19'999;

  friend bool operator==(const PortRange&, const PortRange&) = default;
};
/// "10000-19999", or one port; nothing: it is none, or not within 1024 to 65535.
std::optional<PortRange> parse_port_range(std::string_view text);
std::string to_string(const PortRange& ports);

struct ServicePort {
  PortRange ports;  ///< One of these; a single one where it is taken.
  std::optional<ReadyProbe> probe = {};

  friend bool operator==(const ServicePort&, const ServicePort&) = default;
};
std::string to_line(const ServicePort& port);
std::optional<ServicePort> parse_service_port(std::string_view line);

}  // namespace gpusched
