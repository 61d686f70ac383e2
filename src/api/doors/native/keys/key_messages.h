#pragma once

#include <string>

#include "api/contract/keys.h"
#include "api/doors/rest_query.h"
#include "gpusched/v1/keys.pb.h"

/// Keys in the native API's messages. Pure functions over untrusted messages.
namespace gpusched::api {

/// `by`: who asks, for people.
Answer<KeyRequest> read_key(const v1::CreateKeyRequest& message, std::string by);
/// `fields`: how the fields' names begin in an error.
Answer<RoleRequest> read_role(const std::string& role, const std::string& tenant, const std::string& fields);
Answer<KeyId> read_key_id(const std::string& text);
Answer<KeyFilter> read_key_filter(const v1::ListKeysRequest& message);
/// Leaves problems in the query.
KeyFilter read_key_filter(RestQuery& query);

void write_key(const KeyView& key, v1::Key& out);
void write_key_page(const KeyPage& page, v1::ListKeysResponse& out);

Answer<NodeTokenRequest> read_node_token(const v1::CreateNodeTokenRequest& message, std::string by);
Answer<NodeIdentityFilter> read_identity_filter(const v1::ListNodeIdentitiesRequest& message);
/// Leaves problems in the query.
NodeIdentityFilter read_identity_filter(RestQuery& query);
void write_node_token(const NodeTokenView& token, v1::NodeToken& out);
void write_node_identity(const NodeIdentityView& identity, v1::NodeIdentity& out);
void write_identity_page(const NodeIdentityPage& page, v1::ListNodeIdentitiesResponse& out);

}  // namespace gpusched::api
