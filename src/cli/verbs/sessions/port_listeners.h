#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpusched::cli {

/// Sockets of this machine that listen for connections to forward. They close with their owner. Not
/// thread-safe.
class PortListeners {
 public:
  PortListeners() = default;
  PortListeners(const PortListeners&) = delete;
  PortListeners& operator=(const PortListeners&) = delete;
  ~PortListeners();

  /// Listens on `port` (0: a free one) at `address`: an IPv4 or IPv6 address of this machine, or
  /// "localhost". Errors: kInvalidArgument for another text, kUnavailable when the port is taken or the
  /// address is not this machine's, each with a sentence.
  Result<Unit> add(const std::string& address, uint16_t port);

  /// Where each listens, as in a URL: "127.0.0.1:8888" or "[::1]:8888".
  const std::vector<std::string>& places() const { return places_; }
  const std::vector<uint16_t>& ports() const { return ports_; }
  /// Descriptors, which do not block.
  const std::vector<int>& sockets() const { return sockets_; }

 private:
  std::vector<int> sockets_;
  std::vector<uint16_t> ports_;
  std::vector<std::string> places_;
};

}  // namespace gpusched::cli
