#pragma once

#include <string>

#include "api/contract/backend.h"
#include "api/grpc/grpc_call.h"
#include "gpusched/v1/keys.pb.h"

namespace gpusched::api {

/// The part of a gRPC service that is about keys and nodes' identities, and what lets a call in. The
/// doorkeeper must outlive it.
class KeysService : public GrpcService {
 public:
  KeysService(const std::string& full_name, Backend& backend, GrpcThread& thread,
              const Doorkeeper& doorkeeper);

  void CreateKey(const GrpcCall& incoming, const v1::CreateKeyRequest* request, v1::Key* response);
  void ListKeys(const GrpcCall& incoming, const v1::ListKeysRequest* request, v1::ListKeysResponse* response);
  void RevokeKey(const GrpcCall& incoming, const v1::RevokeKeyRequest* request, v1::Key* response);
  void BindRole(const GrpcCall& incoming, const v1::BindRoleRequest* request, v1::Key* response);
  void CreateNodeToken(const GrpcCall& incoming, const v1::CreateNodeTokenRequest* request,
                       v1::NodeToken* response);
  void ListNodeIdentities(const GrpcCall& incoming, const v1::ListNodeIdentitiesRequest* request,
                          v1::ListNodeIdentitiesResponse* response);
  void RevokeNode(const GrpcCall& incoming, const v1::RevokeNodeRequest* request, v1::NodeIdentity* response);

 protected:
  /// Lets the call do its work when its credential is right.
  template <typename Work>
  void guarded(const GrpcCall& call, Work&& work) {
    const Answer<CallerPtr> caller = call.caller_of(doorkeeper_);
    if (!caller) return call.fail(caller.error());
    work(call, *caller);
  }

  Backend& backend_;
  const Doorkeeper& doorkeeper_;
};

}  // namespace gpusched::api
