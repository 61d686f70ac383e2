#include "api/doors/native/keys/keys_grpc.h"

#include "api/doors/native/keys/key_messages.h"
#include "api/grpc/call_metadata.h"

namespace gpusched::api {
namespace {

Done<KeyView> answer_with_key(const GrpcCall& call, v1::Key* response) {
  return [call, response](Answer<KeyView> answer) {
    if (!answer) return call.fail(answer.error());
    write_key(*answer, *response);
    call.finish();
  };
}

}  // namespace

KeysService::KeysService(const std::string& full_name, Backend& backend, GrpcThread& thread,
                         const Doorkeeper& doorkeeper)
    : GrpcService(full_name), backend_(backend), doorkeeper_(doorkeeper) {
  serve_unary(thread, *this, "CreateKey", &KeysService::CreateKey);
  serve_unary(thread, *this, "ListKeys", &KeysService::ListKeys);
  serve_unary(thread, *this, "RevokeKey", &KeysService::RevokeKey);
  serve_unary(thread, *this, "BindRole", &KeysService::BindRole);
  serve_unary(thread, *this, "CreateNodeToken", &KeysService::CreateNodeToken);
  serve_unary(thread, *this, "ListNodeIdentities", &KeysService::ListNodeIdentities);
  serve_unary(thread, *this, "RevokeNode", &KeysService::RevokeNode);
}

void KeysService::CreateKey(const GrpcCall& incoming, const v1::CreateKeyRequest* request,
                            v1::Key* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    Answer<KeyRequest> read = read_key(*request, requester_of(call.context()));
    if (!read) return call.fail(read.error());
    backend_.create_key(caller, std::move(*read), answer_with_key(call, response));
  });
}

void KeysService::ListKeys(const GrpcCall& incoming, const v1::ListKeysRequest* request,
                           v1::ListKeysResponse* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    Answer<KeyFilter> filter = read_key_filter(*request);
    if (!filter) return call.fail(filter.error());
    backend_.list_keys(caller, std::move(*filter), [call, response](Answer<KeyPage> page) {
      if (!page) return call.fail(page.error());
      write_key_page(*page, *response);
      call.finish();
    });
  });
}

void KeysService::RevokeKey(const GrpcCall& incoming, const v1::RevokeKeyRequest* request,
                            v1::Key* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    const Answer<KeyId> key = read_key_id(request->key_id());
    if (!key) return call.fail(key.error());
    backend_.revoke_key(caller, *key, requester_of(call.context()), answer_with_key(call, response));
  });
}

void KeysService::BindRole(const GrpcCall& incoming, const v1::BindRoleRequest* request, v1::Key* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    const Answer<KeyId> key = read_key_id(request->key_id());
    if (!key) return call.fail(key.error());
    Answer<RoleRequest> role = read_role(request->role(), request->tenant_id(), "");
    if (!role) return call.fail(role.error());
    backend_.bind_role(caller, *key, std::move(*role), request->taken(), requester_of(call.context()),
                       answer_with_key(call, response));
  });
}

void KeysService::CreateNodeToken(const GrpcCall& incoming, const v1::CreateNodeTokenRequest* request,
                                  v1::NodeToken* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    Answer<NodeTokenRequest> read = read_node_token(*request, requester_of(call.context()));
    if (!read) return call.fail(read.error());
    backend_.create_node_token(caller, std::move(*read), [call, response](Answer<NodeTokenView> made) {
      if (!made) return call.fail(made.error());
      write_node_token(*made, *response);
      call.finish();
    });
  });
}

void KeysService::ListNodeIdentities(const GrpcCall& incoming, const v1::ListNodeIdentitiesRequest* request,
                                     v1::ListNodeIdentitiesResponse* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    Answer<NodeIdentityFilter> filter = read_identity_filter(*request);
    if (!filter) return call.fail(filter.error());
    backend_.list_node_identities(caller, std::move(*filter),
                                  [call, response](Answer<NodeIdentityPage> page) {
                                    if (!page) return call.fail(page.error());
                                    write_identity_page(*page, *response);
                                    call.finish();
                                  });
  });
}

void KeysService::RevokeNode(const GrpcCall& incoming, const v1::RevokeNodeRequest* request,
                             v1::NodeIdentity* response) {
  guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
    backend_.revoke_node(caller, request->node_name(), requester_of(call.context()),
                         [call, response](Answer<NodeIdentityView> revoked) {
                           if (!revoked) return call.fail(revoked.error());
                           write_node_identity(*revoked, *response);
                           call.finish();
                         });
  });
}

}  // namespace gpusched::api
