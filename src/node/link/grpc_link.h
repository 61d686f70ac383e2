#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpusched/v1/node.pb.h"
#include "node/link/tls_relay.h"
#include "node/ports/ports.h"

namespace gpusched {

struct GrpcLinkOptions {
  std::string token;
  /// Without a token: the one at the path where the scheduler of this address says that its own is; empty: it
  /// may not be read. Called on a thread of gRPC's.
  std::function<std::string(const std::string& scheduler, const std::string& path)> find_token = {};
  std::string node_name;
  std::string version;
  LinkTls tls = {};
};

/// The stream to a scheduler over gRPC, with the proof of the token on both sides. One connection at a
/// time. The owner's thread calls everything; gRPC's threads fill an inbox.
class GrpcLink final : public NodeLink {
 public:
  explicit GrpcLink(GrpcLinkOptions options);
  ~GrpcLink() override;

  /// Begins to connect to an address of open_scheduler_channel's. Ends any connection before.
  void connect(const std::string& scheduler);
  /// Ends the connection. Nothing of it comes any more.
  void disconnect();
  void send(const v1::AgentMessage& message) override;

  struct Input {
    enum class Kind {
      kUp,         ///< The scheduler proved itself: register now.
      kMessage,    ///< `message`.
      kNotObeyed,  ///< `message` is an order that is not to be obeyed: `why`.
      kDown,       ///< The connection is over or was never made: `why`.
    };
    Kind kind = Kind::kMessage;
    v1::SchedulerMessage message = {};
    std::string why = {};
  };
  /// Takes the inputs since the last call, in order.
  std::vector<Input> take();
  /// Becomes readable when `take` has something.
  int event() const;

 private:
  class Inbox;
  class Done;
  class Stream;

  const GrpcLinkOptions options_;
  std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Stream>> ending_;  ///< Cancelled, and gRPC may not be done with them.
};

}  // namespace gpusched
