#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "consensus/core/peer_message.h"

namespace gpusched::peers {

/// Another replica of the cluster, and where it listens for its peers.
struct Peer {
  uint64_t id = 0;
  std::string host;  ///< A name or an address.
  uint16_t port = 0;

  friend bool operator==(const Peer&, const Peer&) = default;
};

/// Facts that a replica tells its peers: its version, and the public ports that it serves while it leads.
struct PeerFacts {
  std::string version;
  /// Ports of the doors that are open; 0: that door is closed. A replica that does not lead has none open.
  uint16_t http = 0;
  uint16_t grpc = 0;
  uint16_t tasks_grpc = 0;
  uint16_t tasks_http = 0;
  uint16_t allocation = 0;
  uint16_t metrics = 0;
  bool https = false;  ///< HTTP speaks TLS.

  friend bool operator==(const PeerFacts&, const PeerFacts&) = default;
};

/// The link to a peer at one moment.
struct PeerStatus {
  uint64_t id = 0;
  bool connected = false;  ///< Frames for it can be sent.
  bool heard = false;      ///< It sent something within the last `PeerTransport::kSilentAfter`.
  std::string why;         ///< Why it is not connected, as a sentence without an end; empty if it is.
  uint64_t frames_sent = 0;
  uint64_t frames_received = 0;
  uint64_t frames_dropped = 0;  ///< The queue was full, or there was no connection.
  PeerFacts facts;              ///< As it told them last; empty before.
};

/// Carries frames between the replicas of one cluster, over TLS 1.3 that both ends authenticate. Each replica
/// connects to each other one and sends over its own connection only. Frames may be lost, and are never
/// altered, repeated or out of order within one connection. Thread-safe.
class PeerTransport {
 public:
  struct Options {
    uint64_t cluster = 0;          ///< The group's number, as in the certificates and in every frame.
    uint64_t id = 0;               ///< This replica's.
    std::string address;           ///< Address to listen on.
    uint16_t port = 0;             ///< 0: any free one; see `port`.
    std::vector<Peer> peers;       ///< The others; an entry with this replica's id is left out.
    std::string certificate_file;  ///< PEM: key, certificate and the authority's own, as
                                   ///< `Authority::issue_peer` writes.
    std::string authority_file;    ///< PEM: the cluster's authority.
    std::size_t queue_bytes_max = std::size_t{64} << 20;  ///< For one peer; older frames are dropped first.
    Duration reconnect_first = milliseconds(20);          ///< Doubled with each failure, with jitter.
    Duration reconnect_max = milliseconds(500);
  };

  /// Receives what peers send, on the transport's own thread. A slow call delays all peers.
  class Handler {
   public:
    virtual ~Handler() = default;
    /// A frame of the cluster whose `message.from` is `peer`, by the peer's certificate, and whose
    /// `message.to` is this replica.
    virtual void received(uint64_t peer, consensus::PeerFrame frame) = 0;
    /// Frames for `peer` were dropped, or its connection ended. Told once until it is reachable again.
    virtual void unreachable(uint64_t peer) = 0;
    /// The facts of `peer`: on its connection, and when they change.
    virtual void told(uint64_t peer, PeerFacts facts) = 0;
  };

  /// A peer that sends nothing for so long is not heard.
  static constexpr Duration kSilentAfter = seconds(3);

  /// Listens, and begins to connect. `handler` must outlive the transport. kLocked: the port is taken.
  /// kNotFound, kIo, kPermissionDenied, kInvalidArgument: the files, or a certificate that is not this
  /// replica's in this cluster.
  static Result<std::unique_ptr<PeerTransport>> start(Options options, Handler& handler);
  virtual ~PeerTransport() = default;

  /// Sends to `frame.message.to`. Never blocks; a frame for nobody is dropped.
  virtual void send(consensus::PeerFrame frame) = 0;
  /// Sets this replica's facts and tells them to each peer, now and on each later connection.
  virtual void tell(PeerFacts facts) = 0;
  virtual std::vector<PeerStatus> statuses() const = 0;
  /// The port that is listened on.
  virtual uint16_t port() const = 0;
  /// Closes all connections and ends the thread; the handler is not called after it. Not from the handler.
  virtual void stop() = 0;
};

}  // namespace gpusched::peers
