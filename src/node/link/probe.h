#pragma once

#include <string>

#include "base/result.h"
#include "base/time.h"
#include "node/link/tls_relay.h"

namespace gpusched {

/// Facts that a scheduler tells of itself before an agent registers.
struct SchedulerFacts {
  std::string version;       ///< Empty: one that does not say.
  bool knows_token = false;  ///< It proved that it knows our token.
  std::string refusal = {};  ///< Why it takes our certificate or token for none; empty: it did not say.
  Duration clock_ahead;      ///< By how much our clock is ahead of its.
  Duration uncertainty;      ///< Half of the round trip.
  bool tells_time = false;
};

/// Greets the scheduler at `address` (HOST:PORT of its gRPC port) as the node protocol begins, and leaves
/// before registering: nothing changes there. `token` may be empty. kUnavailable or kTimeout when nobody
/// answers; kUnauthenticated when it refuses us. Blocks for at most `patience`, and a little longer to find
/// out what else answers there.
Result<SchedulerFacts> probe_scheduler(const std::string& address, const LinkTls& tls,
                                       const std::string& token, const std::string& node_name,
                                       const std::string& version, Duration patience);

}  // namespace gpusched
