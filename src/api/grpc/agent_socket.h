#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "ops/socket_file.h"
#include "sign/peer_credential.h"

/// The Unix socket for agents of the scheduler's own machine. gRPC does not say whose process calls over one,
/// so the connections are accepted here, and only those of root and of the scheduler's own user, who could
/// read the shared token anyway, become gRPC's.
namespace gpusched::api {

/// Whether the process with that credential may speak for a node without the shared token.
bool may_come_without_token(const sign::PeerCredential& peer);
/// Whether a call came over a connection that was accepted here, by gRPC's word for its peer.
bool is_of_agent_socket(std::string_view grpc_peer);

/// A thread that accepts and looks who it is.
class AgentSocket {
 public:
  /// `take` gets each connection, which is its to close; on the socket's thread.
  using Take = std::function<void(int descriptor)>;
  AgentSocket(std::shared_ptr<ops::SocketFile> file, Take take)
      : file_(std::move(file)), take_(std::move(take)) {}
  ~AgentSocket() { stop(); }

  /// Begins to listen. Once.
  Result<Unit> start();
  /// Nobody is taken any more. Again: does nothing.
  void stop();

 private:
  void run();
  void accept_all();

  const std::shared_ptr<ops::SocketFile> file_;
  const Take take_;
  int listener_ = -1;
  int stop_event_ = -1;
  std::thread thread_;
};

}  // namespace gpusched::api
