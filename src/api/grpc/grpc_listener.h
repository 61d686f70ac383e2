#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/limits/open_sockets.h"
#include "base/result.h"

namespace gpusched::api {

struct GrpcListenerOptions {
  /// For one address (IPv6: one /64), and never more than half of all; 0: no bound.
  std::size_t address_connections_max = 0;
  std::size_t connections_max = 0;  ///< For all addresses; 0: no bound.
  bool bounds_loopback = false;     ///< Loopback is an address like others; else it is free.
};

/// The ports on which gRPC's connections come. gRPC does not count them, so they are accepted here, where
/// those are closed at once of which an address has enough.
class GrpcListener {
 public:
  /// `take` gets each connection, which is its to close; on the listener's thread.
  using Take = std::function<void(int listener, int connection)>;

  GrpcListener() = default;
  ~GrpcListener() { stop(); }

  /// Binds and listens; the port that it is. Port 0: any free one. Before `start`. kLocked: somebody else
  /// listens there; kIo: it cannot be done; kInvalidArgument: no numeric address. The error's field is
  /// `setting`.
  Result<uint16_t> listen(const std::string& address, uint16_t port, const char* setting);
  /// Accepts from now on. Once.
  Result<Unit> start(GrpcListenerOptions options, Take take);
  /// Nobody is taken any more. Again: does nothing.
  void stop();

  /// Connections that were closed for their number. Any thread.
  uint64_t turned_away() const { return turned_away_.load(std::memory_order_relaxed); }

 private:
  void run(OpenSockets& open);
  bool accept_all(OpenSockets& open, int listener);

  GrpcListenerOptions options_;
  Take take_;
  std::vector<int> listeners_;
  int stop_event_ = -1;
  std::atomic<uint64_t> turned_away_{0};
  std::thread thread_;
};

}  // namespace gpusched::api
