// NativeRest: API keys, and nodes' identities.
#include <utility>

#include "api/doors/native/keys/key_messages.h"
#include "api/doors/native/native_rest.h"

namespace gpusched::api {

void NativeRest::create_key(NativeCall& call) {
  v1::CreateKeyRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  call.call->note().line.resource = message.name();
  Answer<KeyRequest> read = read_key(message, requester_of(call));
  if (!read) return call.call->fail(read.error());
  backend_.create_key(call.call->caller(), std::move(*read), answer_with<KeyView>(call, write_key));
}

void NativeRest::list_keys(NativeCall& call) {
  KeyFilter filter = read_key_filter(call.query);
  if (call.refused()) return;
  backend_.list_keys(call.call->caller(), std::move(filter),
                     answer_with<KeyPage, v1::ListKeysResponse>(call, write_key_page));
}

void NativeRest::revoke_key(NativeCall& call) {
  const Answer<KeyId> key = read_key_id(call.path[2]);
  if (!key) return call.call->fail(key.error());
  backend_.revoke_key(call.call->caller(), *key, requester_of(call), answer_with<KeyView>(call, write_key));
}

void NativeRest::bind_role(NativeCall& call) {
  const Answer<KeyId> key = read_key_id(call.path[2]);
  if (!key) return call.call->fail(key.error());
  v1::BindRoleRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  Answer<RoleRequest> role = read_role(message.role(), message.tenant_id(), "");
  if (!role) return call.call->fail(role.error());
  backend_.bind_role(call.call->caller(), *key, std::move(*role), message.taken(), requester_of(call),
                     answer_with<KeyView>(call, write_key));
}

void NativeRest::create_node_token(NativeCall& call) {
  v1::CreateNodeTokenRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  call.call->note().line.resource = message.node_name();
  Answer<NodeTokenRequest> read = read_node_token(message, requester_of(call));
  if (!read) return call.call->fail(read.error());
  backend_.create_node_token(call.call->caller(), std::move(*read),
                             answer_with<NodeTokenView>(call, write_node_token));
}

void NativeRest::list_node_identities(NativeCall& call) {
  NodeIdentityFilter filter = read_identity_filter(call.query);
  if (call.refused()) return;
  backend_.list_node_identities(
      call.call->caller(), std::move(filter),
      answer_with<NodeIdentityPage, v1::ListNodeIdentitiesResponse>(call, write_identity_page));
}

void NativeRest::revoke_node(NativeCall& call) {
  call.call->note().line.resource = call.path[2];
  backend_.revoke_node(call.call->caller(), call.path[2], requester_of(call),
                       answer_with<NodeIdentityView>(call, write_node_identity));
}

}  // namespace gpusched::api
