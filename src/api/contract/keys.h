#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/identity/access_key.h"
#include "model/identity/person.h"

/// API keys: who has one, and what their holders may do. People: for whom keys are made. Nodes' identities:
/// who may become a node, and which nodes have certificates.
namespace gpusched::api {

/// A role that a key is given, or that is taken from it.
struct RoleRequest {
  Role role = Role::kViewer;
  std::string tenant;  ///< Name or id; empty: the key's home, and for a home of the cluster all tenants.
};

struct KeyRequest {
  std::string name;
  /// The home, by name or id; empty: the tenant that the caller means when it names none.
  std::string tenant;
  bool of_cluster = false;  ///< The home is the cluster as a whole, and `tenant` is empty.
  CallerKind kind = CallerKind::kService;
  std::vector<RoleRequest> roles;
  std::vector<std::string> unix_users;
  Time expires_at;         ///< None: never, unless `expires_after` is given.
  Duration expires_after;  ///< Time from now on; at most one of both is given.
  std::string by;          ///< Requester, for people.
  /// Given: the key is this person's, who has the name, the home, the kind and the roles.
  std::optional<PersonId> person = std::nullopt;
};

/// A key as it is shown.
struct KeyView {
  KeyId id;
  TenantId tenant;  ///< Its home; none: the cluster.
  std::string name;
  std::string holder;  ///< The caller's name, as owners of jobs and the audit have it.
  CallerKind kind = CallerKind::kService;
  std::string_view state;  ///< "active", "expired" or "revoked".
  std::string prefix;
  std::vector<Binding> bindings;
  std::vector<std::string> unix_users;
  std::string created_by;
  Time created_at;
  Time expires_at;  ///< None: never.
  Time revoked_at;  ///< None: it is not.
  std::string revoked_by;
  Time last_used_at;   ///< To the minute; none: never, as far as is known.
  std::string secret;  ///< The whole key, in the answer that makes it and never again.
};

struct KeyPage {
  std::vector<KeyView> keys;
  KeyId next;  ///< The next page begins behind this one; none: it was the last.
};

/// Filter of listed keys, in the order of their ids.
struct KeyFilter {
  std::string tenant;  ///< Only those whose home this is; empty: all that the caller may see.
  bool with_ended = false;
  KeyId after;
  int64_t limit = 50;
};

/// API keys. Everything is thread-safe and returns at once; answers come by `Done`, and no earlier than what
/// they tell holds for the next call.
class KeyBackend {
 public:
  virtual ~KeyBackend() = default;

  /// Nobody gives what it could not do itself: access::may_grant, access::may_lend_user.
  virtual void create_key(const CallerPtr& caller, KeyRequest request, Done<KeyView> done) = 0;
  virtual void list_keys(const CallerPtr& caller, KeyFilter filter, Done<KeyPage> done) = 0;
  virtual void revoke_key(const CallerPtr& caller, KeyId key, const std::string& by, Done<KeyView> done) = 0;
  /// Gives a role, or takes it. Does nothing when that is so already.
  virtual void bind_role(const CallerPtr& caller, KeyId key, RoleRequest role, bool taken,
                         const std::string& by, Done<KeyView> done) = 0;
};

/// Values to set for a person. Those not given stay; a new person has the defaults.
struct PersonRequest {
  std::optional<std::string> email;
  std::optional<std::string> password;  ///< Kept as its hash alone.
  std::optional<std::string> tenant;    ///< Name or id. Not given for a new one: that which the caller means.
  std::optional<Role> role;
  std::optional<bool> active;
  std::string by;  ///< Requester, for people.
};

/// A person as shown: nothing of the password.
struct PersonView {
  PersonId id;
  TenantId tenant;  ///< None: the cluster.
  std::string email;
  Role role = Role::kUser;
  bool active = true;
  Time created_at, updated_at;
};

/// Everything is thread-safe and returns at once; answers come by `Done`.
class PersonBackend {
 public:
  virtual ~PersonBackend() = default;

  /// `person` none: a new one. Nobody gives a role that it could not give a key.
  virtual void record_person(const CallerPtr& caller, PersonId person, PersonRequest request,
                             Done<PersonView> done) = 0;
  /// In the order of their ids: `limit` of them behind the first `skip`.
  virtual void list_people(const CallerPtr& caller, int64_t skip, int64_t limit,
                           Done<std::vector<PersonView>> done) = 0;
};

struct NodeTokenRequest {
  std::string node;
  Duration expires_after = hours(1);
  std::string by;  ///< Requester, for people.
};

/// A node token that was just made. Its text is in this answer and nowhere else.
struct NodeTokenView {
  std::string node;
  std::string prefix;
  std::string created_by;
  Time expires_at;
  std::string secret;
};

struct NodeIdentityView {
  std::string node;
  std::string_view state;  ///< "active", "expired" or "revoked".
  std::string admitted_by;
  Time admitted_at;
  Time renewed_at;  ///< None: its first certificate is its newest.
  Time expires_at;  ///< End of its newest certificate.
  Time revoked_at;  ///< None: it is not.
  std::string revoked_by;
};

struct NodeIdentityPage {
  std::vector<NodeIdentityView> identities;
  std::string next;  ///< The next page begins behind this name; empty: it was the last.
};

struct NodeIdentityFilter {
  std::string after;  ///< Only names behind this one.
  int64_t limit = 1'000;
};

/// As KeyBackend.
class NodeIdentityBackend {
 public:
  virtual ~NodeIdentityBackend() = default;

  virtual void create_node_token(const CallerPtr& caller, NodeTokenRequest request,
                                 Done<NodeTokenView> done) = 0;
  virtual void list_node_identities(const CallerPtr& caller, NodeIdentityFilter filter,
                                    Done<NodeIdentityPage> done) = 0;
  virtual void revoke_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                           Done<NodeIdentityView> done) = 0;
};

}  // namespace gpusched::api
