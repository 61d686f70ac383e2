#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "peers/peer_transport.h"

namespace gpusched::peers {

/// A public port by what it serves.
enum class Door { kHttp, kGrpc, kTasksGrpc, kTasksHttp, kAllocation };

/// Passes connections to the public ports of a replica that does not lead on to the same doors of the one
/// that does: bytes as they come, TLS end to end. Callers are who they are by their credentials alone, since
/// the leader sees this replica's address. Thread-safe; works on a thread of its own.
class PortRelay {
 public:
  struct Port {
    Door door = Door::kHttp;
    uint16_t port = 0;         ///< 0: any free one.
    std::string setting = {};  ///< Setting that names the port, for errors.
  };
  struct Options {
    std::string address;  ///< A numeric address, or a name of this machine.
    std::vector<Port> ports;
    bool https = false;                    ///< The HTTP doors speak TLS: no answer can be given here.
    std::string no_leader;                 ///< JSON body of the 503 that HTTP doors answer without a leader.
    std::size_t connections_max = 10'000;  ///< Lowered to what the limit of open files allows.
    std::size_t address_connections_max = 0;  ///< For one address; 0: no bound.
    Duration patience = seconds(2);           ///< A connection waits so long for a leader.
  };
  struct Leader {
    std::string host;
    PeerFacts facts;

    friend bool operator==(const Leader&, const Leader&) = default;
  };
  struct Counts {
    uint64_t accepted = 0;
    uint64_t open = 0;         ///< Now.
    uint64_t turned_away = 0;  ///< There were too many, or no leader in time.
  };

  /// Listens on all ports. kLocked: one is taken; the error's field is its setting. kIo, kInvalidArgument.
  static Result<std::unique_ptr<PortRelay>> start(Options options);
  virtual ~PortRelay() = default;

  /// Passes new connections to this leader; nothing: they wait for one. When it is another one than before,
  /// all connections that were passed on are closed, so that their clients connect again.
  virtual void follow(std::optional<Leader> leader) = 0;
  /// The bound port of a door; 0: it has none.
  virtual uint16_t port(Door door) const = 0;
  virtual Counts counts() const = 0;
  /// Closes everything; the ports are free when it returns.
  virtual void stop() = 0;
};

}  // namespace gpusched::peers
