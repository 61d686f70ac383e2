#include "api/doors/native/keys/key_messages.h"

#include <algorithm>

#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/doors/pages.h"
#include "api/fields/checks.h"
#include "api/fields/job_message.h"
#include "base/limits.h"
#include "base/text/host_name.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kKeyNameBytesMax = 64;
constexpr std::size_t kUnixUserBytesMax = 64;
constexpr Duration kExpiryMax = hours(24 * 3'660);
constexpr Duration kNodeTokenValidMax = hours(24 * 30);

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
}

/// No slash: a holder's name is the key's behind one.
bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= kKeyNameBytesMax &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || c == '-' || c == '@'; });
}

bool is_unix_user(std::string_view user) {
  if (user == "*") return true;
  return !user.empty() && user.size() <= kUnixUserBytesMax && user.front() != '-' &&
         std::ranges::all_of(
             user, [](char c) { return is_letter(c) || c == '-' || c == '@' || c == '$' || c == '\\'; });
}

std::optional<ApiError> check_many(std::string_view field, int count, std::size_t most) {
  if (std::cmp_less_equal(count, most)) return std::nullopt;
  return invalid(field,
                 std::string(field) + " has more than " + std::to_string(most) + " entries; give fewer");
}

std::optional<ApiError> read_expiry(const v1::CreateKeyRequest& message, KeyRequest& request) {
  const int64_t after_ms = message.expires_after_ms();
  if (message.has_expires_at() && message.has_expires_after_ms())
    return invalid("expires_at", "expires_at is given both as a time and as a duration; send one of them");
  if (auto problem = check_time("expires_at", message.has_expires_at(), message.expires_at(), 0))
    return problem;
  if (message.has_expires_after_ms() && (after_ms < 1 || after_ms > kExpiryMax.ms()))
    return invalid("expires_after_ms",
                   "expires_after_ms must be from 1 to " + std::to_string(kExpiryMax.ms()));
  if (message.has_expires_at()) request.expires_at = read_time(message.expires_at());
  request.expires_after = milliseconds(after_ms);
  return std::nullopt;
}

std::optional<ApiError> read_kind(const std::string& word, KeyRequest& request) {
  if (word.empty()) return std::nullopt;
  const auto kind = caller_kind_named(word);
  if (kind != CallerKind::kService && kind != CallerKind::kPerson)
    return invalid("kind", "kind must be service or person");
  request.kind = *kind;
  return std::nullopt;
}

void write_instant(Time time, google::protobuf::Timestamp& out) {
  out.set_seconds(time.ns / 1'000'000'000);
  out.set_nanos(static_cast<int32_t>(time.ns % 1'000'000'000));
}

}  // namespace

Answer<KeyRequest> read_key(const v1::CreateKeyRequest& message, std::string by) {
  if (!is_key_name(message.name()))
    return invalid("name", "name must have 1 to 64 letters, digits, '.', '_', '-' or '@'");
  if (message.cluster() && !message.tenant_id().empty())
    return invalid("tenant_id", "a key of the cluster has no tenant; send either cluster or tenant_id");
  if (auto problem = check_length("tenant_id", message.tenant_id(), limits::kNameBytesMax))
    return std::move(*problem);
  if (auto problem = check_many("roles", message.roles_size(), limits::kKeyBindingsMax))
    return std::move(*problem);
  if (auto problem = check_many("unix_users", message.unix_users_size(), limits::kKeyUnixUsersMax))
    return std::move(*problem);
  KeyRequest request{.name = message.name(), .tenant = message.tenant_id(), .of_cluster = message.cluster()};
  request.by = std::move(by);
  if (auto problem = read_kind(message.kind(), request)) return std::move(*problem);
  if (auto problem = read_expiry(message, request)) return std::move(*problem);
  for (int i = 0; i < message.roles_size(); ++i) {
    const v1::KeyRole& role = message.roles(i);
    Answer<RoleRequest> read = read_role(role.role(), role.tenant_id(), "roles[" + std::to_string(i) + "].");
    if (!read) return read.error();
    request.roles.push_back(std::move(*read));
  }
  for (int i = 0; i < message.unix_users_size(); ++i) {
    const std::string& user = message.unix_users(i);
    if (!is_unix_user(user))
      return invalid("unix_users[" + std::to_string(i) + "]", "this is no name of a Unix user, nor *");
    if (std::ranges::find(request.unix_users, user) == request.unix_users.end())
      request.unix_users.push_back(user);
  }
  return request;
}

Answer<RoleRequest> read_role(const std::string& role, const std::string& tenant, const std::string& fields) {
  const std::optional<Role> named = role_named(role);
  if (!named || scope_of(*named) == RoleScope::kNowhere) {
    return invalid(fields + "role",
                   "the role must be viewer, user, tenant_admin, operator, admin or metrics");
  }
  if (auto problem = check_length(fields + "tenant_id", tenant, limits::kNameBytesMax))
    return std::move(*problem);
  return RoleRequest{.role = *named, .tenant = tenant};
}

Answer<KeyId> read_key_id(const std::string& text) {
  if (const auto key = parse_key_id(text)) return *key;
  return ApiError{ErrorKind::kKeyNotFound, "no such key: " + text.substr(0, 64) + "; ids look like key-12",
                  "key_id"};
}

Answer<KeyFilter> read_key_filter(const v1::ListKeysRequest& message) {
  if (message.page_size() < 0) return invalid("page_size", "page_size must not be negative");
  KeyFilter filter{.tenant = message.tenant_id(), .with_ended = message.with_ended()};
  filter.limit = message.page_size() == 0 ? kPageDefault : std::min<int64_t>(message.page_size(), kPageMax);
  if (message.page_token().empty()) return filter;
  const auto after = parse_key_id(message.page_token());
  if (!after) return invalid("page_token", "page_token is none that was given out");
  filter.after = *after;
  return filter;
}

KeyFilter read_key_filter(RestQuery& query) {
  v1::ListKeysRequest message;
  message.set_tenant_id(query.text("tenant_id").value_or(""));
  message.set_with_ended(query.flag("with_ended"));
  message.set_page_size(static_cast<int32_t>(std::min(query.count("page_size", 0, INT64_MAX), kPageMax)));
  message.set_page_token(query.text("page_token").value_or(""));
  const Answer<KeyFilter> filter = read_key_filter(message);
  if (filter) return *filter;
  query.fail(filter.error());
  return {};
}

void write_key(const KeyView& key, v1::Key& out) {
  out.set_key_id(key_name(key.id));
  out.set_name(key.name);
  out.set_kind(std::string(to_string(key.kind)));
  if (key.tenant.valid()) out.set_tenant_id(tenant_name(key.tenant));
  out.set_holder(key.holder);
  for (const Binding& binding : key.bindings) {
    v1::KeyRole& role = *out.add_roles();
    role.set_role(std::string(to_string(binding.role)));
    if (binding.tenant.valid()) role.set_tenant_id(tenant_name(binding.tenant));
  }
  for (const std::string& user : key.unix_users) out.add_unix_users(user);
  out.set_prefix(key.prefix);
  out.set_state(std::string(key.state));
  out.set_created_by(key.created_by);
  write_instant(key.created_at, *out.mutable_created_at());
  if (key.expires_at.valid()) write_instant(key.expires_at, *out.mutable_expires_at());
  if (key.revoked_at.valid()) write_instant(key.revoked_at, *out.mutable_revoked_at());
  out.set_revoked_by(key.revoked_by);
  if (key.last_used_at.valid()) write_instant(key.last_used_at, *out.mutable_last_used_at());
  if (!key.secret.empty()) out.set_secret(key.secret);
}

void write_key_page(const KeyPage& page, v1::ListKeysResponse& out) {
  for (const KeyView& key : page.keys) write_key(key, *out.add_keys());
  if (page.next.valid()) out.set_next_page_token(key_name(page.next));
}

Answer<NodeTokenRequest> read_node_token(const v1::CreateNodeTokenRequest& message, std::string by) {
  if (message.node_name().empty()) return invalid("node_name", "node_name must be the name of one node");
  if (!is_host_name(message.node_name()))
    return invalid("node_name", std::string("node_name must be ") + kHostNameRule);
  NodeTokenRequest request{.node = message.node_name(), .by = std::move(by)};
  if (!message.has_expires_after_ms()) return request;
  const int64_t after_ms = message.expires_after_ms();
  if (after_ms < 1 || after_ms > kNodeTokenValidMax.ms())
    return invalid("expires_after_ms",
                   "expires_after_ms must be from 1 to " + std::to_string(kNodeTokenValidMax.ms()));
  request.expires_after = milliseconds(after_ms);
  return request;
}

Answer<NodeIdentityFilter> read_identity_filter(const v1::ListNodeIdentitiesRequest& message) {
  if (message.page_size() < 0) return invalid("page_size", "page_size must not be negative");
  if (auto problem = check_length("page_token", message.page_token(), limits::kNameBytesMax))
    return std::move(*problem);
  return NodeIdentityFilter{
      .after = message.page_token(),
      .limit = message.page_size() == 0 ? kPageDefault : std::min<int64_t>(message.page_size(), kPageMax)};
}

NodeIdentityFilter read_identity_filter(RestQuery& query) {
  v1::ListNodeIdentitiesRequest message;
  message.set_page_size(static_cast<int32_t>(std::min(query.count("page_size", 0, INT64_MAX), kPageMax)));
  message.set_page_token(query.text("page_token").value_or(""));
  const Answer<NodeIdentityFilter> filter = read_identity_filter(message);
  if (filter) return *filter;
  query.fail(filter.error());
  return {};
}

void write_node_token(const NodeTokenView& token, v1::NodeToken& out) {
  out.set_node_name(token.node);
  out.set_prefix(token.prefix);
  out.set_created_by(token.created_by);
  write_instant(token.expires_at, *out.mutable_expires_at());
  out.set_secret(token.secret);
}

void write_node_identity(const NodeIdentityView& identity, v1::NodeIdentity& out) {
  out.set_node_name(identity.node);
  out.set_state(std::string(identity.state));
  out.set_admitted_by(identity.admitted_by);
  write_instant(identity.admitted_at, *out.mutable_admitted_at());
  if (identity.renewed_at.valid()) write_instant(identity.renewed_at, *out.mutable_renewed_at());
  write_instant(identity.expires_at, *out.mutable_expires_at());
  if (identity.revoked_at.valid()) write_instant(identity.revoked_at, *out.mutable_revoked_at());
  out.set_revoked_by(identity.revoked_by);
}

void write_identity_page(const NodeIdentityPage& page, v1::ListNodeIdentitiesResponse& out) {
  for (const NodeIdentityView& identity : page.identities)
    write_node_identity(identity, *out.add_identities());
  out.set_next_page_token(page.next);
}

}  // namespace gpusched::api
