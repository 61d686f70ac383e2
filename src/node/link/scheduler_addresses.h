#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "base/result.h"
#include "base/time.h"
#include "node/link/trust.h"

namespace gpusched {

/// One address at which a scheduler takes agents.
struct SchedulerAddress {
  std::string text;  ///< "HOST:PORT" or "unix:/PATH".
  Address tcp = {};  ///< Without a host: it is the path of a Unix socket.

  bool is_socket() const { return tcp.host.empty(); }
};

/// The addresses of one cluster's schedulers, with commas between them. kInvalidArgument, in one sentence: an
/// address that cannot be read or stands twice, none, too many, and with `tls` the path of a socket, over
/// which TLS is not spoken.
Result<std::vector<SchedulerAddress>> parse_scheduler_addresses(std::string_view list, bool tls);

/// The order and the pace in which an agent tries the addresses of its cluster's schedulers: one serves, and
/// nobody tells which. After a failure the next address follows soon; the pause behind each fruitless round
/// doubles, and so does the patience with an address that is silent. Not thread-safe.
class SchedulerRounds {
 public:
  /// `addresses` has one or more.
  SchedulerRounds(std::vector<SchedulerAddress> addresses, uint64_t seed);

  const SchedulerAddress& current() const { return addresses_[at_]; }
  const std::vector<SchedulerAddress>& all() const { return addresses_; }
  /// How long the current address may take until it serves.
  Duration patience() const;
  /// The current address does not serve, or does so no longer: moves to the next one. Returns the pause
  /// before it is tried, which is random, so that agents that lost one scheduler do not come back as one.
  Duration failed();
  /// The current address serves.
  void succeeded();

 private:
  std::vector<SchedulerAddress> addresses_;
  std::size_t at_ = 0;
  std::size_t failures_ = 0;  ///< In the round that is under way.
  Duration pause_;
  Duration patience_;
  Prng jitter_;
};

}  // namespace gpusched
