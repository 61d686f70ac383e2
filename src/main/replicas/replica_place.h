#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "main/replicas/replica_group.h"
#include "main/serve.h"
#include "peers/peer_transport.h"
#include "peers/port_relay.h"

/// One scheduler of several, as its configuration and data folder say. In builds with the consensus of
/// replicas only.
namespace gpusched {

/// One scheduler's place among several.
struct ReplicaPlace {
  ReplicaGroup group;
  std::vector<ReplicaPeer> peers;  ///< This one too.
  peers::PeerTransport::Options transport;

  /// The host under which another replica is reached; empty: there is none with this id.
  std::string host_of(uint64_t id) const;
};

/// Nothing: the scheduler is the only one. Makes the certificate for the links between replicas where there
/// is none with a third of its time left. kInvalidArgument, with what to do: folder and configuration do not
/// belong together. kIo, kCorrupt, kPermissionDenied.
Result<std::optional<ReplicaPlace>> find_replica_place(const Config& config, const std::string& data_dir);

/// The ports of a scheduler that does not lead, all but that of the metrics.
peers::PortRelay::Options relay_options(const Config& config);

/// Facts that a scheduler that leads tells the others.
peers::PeerFacts leader_facts(const BoundPorts& ports);
/// Facts that one that does not lead tells them.
peers::PeerFacts follower_facts();

/// Path of the certificate for the links between replicas.
std::string peer_certificate_file(const std::string& data_dir);
Result<Unit> renew_peer_certificate(const ReplicaGroup& group, const std::string& data_dir);

}  // namespace gpusched
