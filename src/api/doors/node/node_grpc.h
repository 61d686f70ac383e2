#pragma once

#include <memory>
#include <string>

#include "host/host.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class Admission;
class NodeAddresses;
class GrpcThread;
class NodeEnrollment;

struct NodeServiceOptions {
  std::string token;                     ///< Agents must prove to know it.
  std::string token_file = {};           ///< Told to agents on this machine; empty: nothing.
  bool everybody_trusted = false;        ///< For tests of doors: no proof is asked for.
  bool old_handshake = false;            ///< Agents may prove it in the way of older ones.
  NodeEnrollment* enrollment = nullptr;  ///< Desk of nodes' identities; null: there are none.
  Admission* admission = nullptr;        ///< Limits for machines that want to become nodes; null: none.
  NodeAddresses* addresses = nullptr;    ///< Learns where nodes are; null: nobody does.
  std::string version;                   ///< Told to agents.
};

/// gpusched.v1.NodeProtocol: checks who an agent is and hands its stream to the host's node hub.
class NodeService {
 public:
  NodeService(Host& host, GrpcThread& thread, NodeServiceOptions options);
  ~NodeService();

  grpc::Service* service();
  /// Ends every stream, so that a shutdown need not wait for them.
  void close_all();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpusched::api
