#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "peers/peer_transport.h"
#include "peers/port_relay.h"
#include "sign/tls_context.h"

/// The port of the metrics of a scheduler that does not lead. In builds with the consensus of replicas only.
namespace gpusched {

/// A replica as people and monitoring see it.
struct ReplicaReport {
  uint64_t id = 0;
  std::string role;     ///< "follower", "candidate" or "leader".
  uint64_t leader = 0;  ///< 0: none is known.
  uint64_t term = 0;
  uint64_t commit = 0;   ///< Last entry that is known to be committed.
  uint64_t applied = 0;  ///< Last entry that is in the journal here.
  uint64_t elections = 0;
  std::string trouble;  ///< Why it takes no part any more; empty: it does.
  std::vector<peers::PeerStatus> peers;
  peers::PortRelay::Counts relay;
};

/// Whether the replica takes part and knows a leader.
bool is_healthy(const ReplicaReport& report);
/// The JSON of `/health`.
std::string health_json(const ReplicaReport& report);
/// The text of `/metrics`, whose names begin with `name_space`.
std::string replica_metrics(const ReplicaReport& report, const std::string& name_space);
/// A sentence for each other replica that was not heard for some seconds: why, and how many more may go.
std::vector<std::string> absent_replicas(const std::vector<peers::PeerStatus>& others);

/// Answers `/health` and the metrics' path to everybody: neither tells of jobs or tenants.
class FollowerServer {
 public:
  /// `look` is called on the server's thread and must not block. kLocked: the port is taken, and metrics.port
  /// is the error's field. Null: metrics are off. `bound`, if any, gets the port.
  static Result<std::unique_ptr<FollowerServer>> start(const Config& config,
                                                       std::shared_ptr<const sign::TlsServer> tls,
                                                       std::function<ReplicaReport()> look,
                                                       uint16_t* bound = nullptr);
  virtual ~FollowerServer() = default;
  /// The port is free when it returns. Again: does nothing.
  virtual void stop() = 0;
};

}  // namespace gpusched
