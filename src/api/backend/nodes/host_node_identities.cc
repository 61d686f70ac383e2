// HostBackend: nodes' identities. Rights are decided here; whether it makes sense the engine says.
#include <algorithm>
#include <utility>

#include "access/access.h"
#include "api/backend/host_backend.h"
#include "api/views/state_views.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "sign/api_key.h"

namespace gpusched::api {
namespace {

using access::Action;

NodeIdentityView identity_view(const State& state, const NodeIdentity& identity) {
  const bool over = identity.expires_at <= std::max(state.last.at, wall_now());
  return {.node = identity.node,
          .state = identity.is_revoked() ? "revoked"
                   : over                ? "expired"
                                         : "active",
          .admitted_by = utf8_cleaned(identity.admitted_by),
          .admitted_at = identity.admitted_at,
          .renewed_at = identity.renewed_at,
          .expires_at = identity.expires_at,
          .revoked_at = identity.revoked_at,
          .revoked_by = utf8_cleaned(identity.revoked_by)};
}

/// The requester's name as kept: the caller by its credential, and in brackets what it calls itself.
std::string who_asked(const access::Caller& caller, const std::string& by) {
  std::string who = caller.name;
  if (caller.kind != CallerKind::kOperator) who = std::string(gpusched::to_string(caller.kind)) + " " + who;
  if (!by.empty()) who += " (" + by + ")";
  return std::string(utf8_cut(who, limits::kNameBytesMax));
}

/// Why the caller may not; nothing: it may.
std::optional<ApiError> refused_about_nodes(const access::Caller& caller, Action action, const char* what) {
  if (decide_access(caller, action, {}) == access::Verdict::kAllowed) return std::nullopt;
  return not_allowed(caller, action, what);
}

}  // namespace

void HostBackend::create_node_token(const CallerPtr& caller, NodeTokenRequest request,
                                    Done<NodeTokenView> done) {
  if (auto refused = refused_about_nodes(*caller, Action::kAdmitNode, "make a node token"))
    return done(std::move(*refused));
  sign::NewApiKey made = sign::make_node_token();
  const Time expires_at = wall_now() + request.expires_after;
  CreateNodeTicket command{.node = request.node,
                           .prefix = made.prefix,
                           .hash = Blob(made.hash),
                           .expires_at = expires_at,
                           .by = who_asked(*caller, request.by)};
  NodeTokenView view{.node = std::move(request.node),
                     .prefix = std::move(made.prefix),
                     .created_by = command.by,
                     .expires_at = expires_at,
                     .secret = std::move(made.text)};
  // The client may use the token at once: `NodeEnrollment::join` looks where readers look.
  propose(*caller, std::move(command),
          [this, view = std::move(view), done = std::move(done)](Result<Decided> decided) {
            if (auto refused = refusal(decided)) return done(std::move(*refused));
            host_.observer().read(decided->sequence, [view, done](const Observer::View&) { done(view); });
          });
}

void HostBackend::list_node_identities(const CallerPtr& caller, NodeIdentityFilter filter,
                                       Done<NodeIdentityPage> done) {
  if (auto refused = refused_about_nodes(*caller, Action::kSeeIdentity, "see nodes' certificates"))
    return done(std::move(*refused));
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([place = std::move(place), filter = std::move(filter),
             done = std::move(done)](const Observer::View& view) {
    const auto& all = view.state.node_identities.identities();
    NodeIdentityPage page;
    for (auto at = all.upper_bound(filter.after); at != all.end(); ++at) {
      if (std::cmp_equal(page.identities.size(), filter.limit)) {
        page.next = page.identities.back().node;
        break;
      }
      page.identities.push_back(identity_view(view.state, at->second));
    }
    done(std::move(page));
  });
}

void HostBackend::revoke_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                              Done<NodeIdentityView> done) {
  if (auto refused = refused_about_nodes(*caller, Action::kRevokeNode, "revoke a node"))
    return done(std::move(*refused));
  // No node has such a name.
  if (has_control_character(node) || node.empty() || node.size() > limits::kNameBytesMax)
    return done(ApiError{ErrorKind::kNodeIdentityNotFound, "the node has no certificate"});
  propose(*caller, RevokeNode{.node = node, .by = who_asked(*caller, by)},
          [this, node, done = std::move(done)](Result<Decided> decided) {
            if (auto refused = refusal(decided)) return done(std::move(*refused));
            host_.observer().read(decided->sequence, [node, done](const Observer::View& view) {
              const NodeIdentity* const identity = view.state.node_identities.find(node);
              if (identity == nullptr)
                return done(ApiError{ErrorKind::kNodeIdentityNotFound, "the node has no certificate"});
              done(identity_view(view.state, *identity));
            });
          });
}

}  // namespace gpusched::api
