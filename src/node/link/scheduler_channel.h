#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "node/link/tls_relay.h"

namespace gpusched {

/// A channel to a scheduler, with what protects it.
struct SchedulerChannel {
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<TlsRelay> relay = nullptr;  ///< None: plain.
  std::string trouble = {};  ///< Why there was no connection to begin with; empty: there was.

  /// Why a call on it ended with `status`, as a sentence without an end.
  std::string why(const grpc::Status& status) const;
};

/// `scheduler`: HOST:PORT, or unix:PATH of a socket where only one listens whom this process may believe. A
/// channel with TLS or to a socket is one connection, which does not come back.
SchedulerChannel open_scheduler_channel(const std::string& scheduler, const LinkTls& tls,
                                        grpc::ChannelArguments arguments);

}  // namespace gpusched
