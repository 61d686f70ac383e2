#include "api/backend/nodes/node_enrollment.h"

#include <chrono>
#include <future>
#include <utility>
#include <variant>
#include <vector>

#include "api/views/state_views.h"
#include "base/check.h"
#include "base/limits.h"
#include "sign/api_key.h"

namespace gpusched::api {
namespace {

const char* const kJoinAnew =
    "create a node token for it with gpu-scheduler node-token create, and join it with that";

ApiError stranger(const std::string& node, const std::string& why) {
  return {ErrorKind::kUnauthenticated, "the node " + node + " " + why + "; " + kJoinAnew};
}

ApiError revoked(const std::string& node) {
  return {ErrorKind::kNodeRevoked,
          "the node " + node + " was revoked; if it shall be a node again, " + kJoinAnew};
}

ApiError no_such_token() {
  return {
      ErrorKind::kNodeTokenInvalid,
      "this node token does not exist, was replaced by a newer one, or is for another node; create one for "
      "this node's name with gpu-scheduler node-token create"};
}

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Time instant_of(int64_t unix_seconds) { return Time{} + seconds(unix_seconds); }

}  // namespace

std::optional<ApiError> NodeConnections::refusal_here(const std::string& node,
                                                      const std::optional<sign::NodeClaim>& claim,
                                                      bool required) const {
  const auto found = known_.find(node);
  if (found != known_.end() && found->second.revoked) return revoked(node);
  if (!claim) {
    if (found != known_.end())
      return stranger(node, "has a certificate, and must show it over TLS: the shared token is not enough");
    if (required) return stranger(node, "has no certificate, which agent.require_certificates demands");
    return std::nullopt;
  }
  if (claim->node != node)
    return stranger(node, "is another one than that of the certificate that was shown, " + claim->node);
  if (found == known_.end()) return stranger(node, "has a certificate that this scheduler knows nothing of");
  if (found->second.identity != claim->identity)
    return stranger(node, "has joined anew since this certificate was given, perhaps on another machine");
  return std::nullopt;
}

std::optional<ApiError> NodeConnections::refusal(const std::string& node,
                                                 const std::optional<sign::NodeClaim>& claim,
                                                 bool required) const {
  const std::lock_guard lock(mutex_);
  return refusal_here(node, claim, required);
}

Answer<std::shared_ptr<void>> NodeConnections::let_in(const std::string& node,
                                                      const std::optional<sign::NodeClaim>& claim,
                                                      bool required,
                                                      std::function<void(const ApiError&)> end) {
  const std::lock_guard lock(mutex_);
  if (std::optional<ApiError> why = refusal_here(node, claim, required)) return std::move(*why);
  open_.push_back({.node = node, .claim = claim, .end = std::move(end)});
  const auto at = std::prev(open_.end());
  return std::shared_ptr<void>(&*at, [connections = shared_from_this(), at](void*) {
    const std::lock_guard lock_again(connections->mutex_);
    connections->open_.erase(at);
  });
}

void NodeConnections::set(const NodeIdentity& identity) {
  known_[identity.node] = {.identity = identity.id.value, .revoked = identity.is_revoked()};
}

void NodeConnections::fill(const State& state) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, identity] : state.node_identities.identities()) set(identity);
}

void NodeConnections::observe(const State& state, const Changes& changes) {
  for (const Event& event : changes.events) {
    if (const auto* admitted = std::get_if<NodeAdmitted>(&event)) {
      {
        const std::lock_guard lock(mutex_);
        set(*state.node_identities.find(admitted->identity->node));
      }
      look_at(admitted->identity->node);
    } else if (const auto* gone = std::get_if<NodeRevoked>(&event)) {
      {
        const std::lock_guard lock(mutex_);
        set(*state.node_identities.find(gone->node));
      }
      look_at(gone->node);
    } else if (const auto* renewed = std::get_if<NodeRenewed>(&event)) {
      const std::lock_guard lock(mutex_);
      for (Open& open : open_) {
        if (open.claim && open.claim->identity == renewed->identity.value)
          open.claim->expires_at = renewed->expires_at.ns / seconds(1).ns;
      }
    }
  }
}

/// Ends what may not go on. Outside of the lock: who is ended gives its place back.
void NodeConnections::look_at(const std::string& node) {
  std::vector<std::pair<std::function<void(const ApiError&)>, ApiError>> over;
  {
    const std::lock_guard lock(mutex_);
    for (const Open& open : open_) {
      if (open.node != node) continue;
      if (std::optional<ApiError> why = refusal_here(node, open.claim, false))
        over.emplace_back(open.end, std::move(*why));
    }
  }
  for (const auto& [end, why] : over) end(why);
}

void NodeConnections::end_expired(int64_t now_s) {
  std::vector<std::pair<std::function<void(const ApiError&)>, ApiError>> over;
  {
    const std::lock_guard lock(mutex_);
    for (const Open& open : open_) {
      if (open.claim && open.claim->expires_at < now_s)
        over.emplace_back(open.end, stranger(open.node, "has a certificate that has expired"));
    }
  }
  for (const auto& [end, why] : over) end(why);
}

NodeEnrollment::NodeEnrollment(Host& host, NodeEnrollmentOptions options)
    : host_(host), options_(std::move(options)) {
  CHECK(options_.authority == nullptr || options_.order_key != nullptr);
  host_.observer().add_listener(
      [connections = connections_](const Observer::View& view, const Changes& changes) {
        connections->observe(view.state, changes);
      });
  // Where the observer has ended, the promise ends with the query.
  auto filled = std::make_shared<std::promise<void>>();
  const std::future<void> known = filled->get_future();
  host_.observer().read(0,
                        [connections = connections_, filled = std::move(filled)](const Observer::View& view) {
                          connections->fill(view.state);
                          filled->set_value();
                        });
  known.wait();
}

Answer<std::optional<sign::NodeClaim>> NodeEnrollment::claim_of(const std::string& certificate_pem) const {
  if (certificate_pem.empty() || options_.authority == nullptr) return std::optional<sign::NodeClaim>();
  Result<sign::NodeClaim> claim = options_.authority->node_of(certificate_pem);
  if (claim) return std::optional(std::move(*claim));
  return ApiError{ErrorKind::kUnauthenticated,
                  "the agent's certificate was refused: " + claim.error().message +
                      "; join the node anew with a node token"};
}

/// Issues the certificate once the admission is durable and holds for all who ask next.
void NodeEnrollment::admit(AdmitNode command, const std::shared_ptr<const sign::NodeRequest>& request,
                           std::function<void(Issued)> done) const {
  const int64_t expires_s = unix_now() + options_.valid.ms() / 1'000;
  command.key = Blob(request->key_hash());
  command.expires_at = instant_of(expires_s);
  const std::string node = command.node;
  const auto issue = [authority = options_.authority, request, node, expires_s,
                      done](const Observer::View& view) {
    const NodeIdentity* const identity = view.state.node_identities.find(node);
    if (identity == nullptr || identity->is_revoked()) return done(revoked(node));
    if (identity->key.view() != request->key_hash())
      return done(stranger(node, "has just joined anew, or renewed with another key"));
    done(authority->issue_node(*request,
                               {.node = node, .identity = identity->id.value, .expires_at = expires_s}));
  };
  host_.propose(std::move(command), [host = &host_, issue, done](const Result<Decided>& decided) {
    if (!decided.ok()) return done(to_api_error(decided.error()));
    if (decided->applied.rejection) return done(to_api_error(*decided->applied.rejection, 1));
    host->observer().read(decided->sequence, issue);
  });
}

void NodeEnrollment::join(const std::string& node, const std::string& token, const std::string& request_der,
                          std::function<void(Issued)> done) const {
  if (options_.authority == nullptr)
    return done(ApiError{ErrorKind::kUnprocessable,
                         "this scheduler gives no certificates to nodes: its gRPC port is without TLS; set "
                         "api.enable_tls, see docs/operate/tls.md"});
  const auto parts = sign::parse_node_token(token);
  if (!parts) return done(no_such_token());
  Result<sign::NodeRequest> read = sign::NodeRequest::read(request_der);
  if (!read) return done(ApiError{ErrorKind::kInvalidArgument, read.error().message});
  const auto request = std::make_shared<const sign::NodeRequest>(std::move(*read));
  host_.observer().read(0, [this, node, request, prefix = std::string(parts->prefix),
                            secret = std::string(parts->secret),
                            done = std::move(done)](const Observer::View& view) {
    const NodeTicket* const ticket = view.state.node_identities.find_ticket(prefix);
    // One that is not there takes as long as one that is.
    static const std::string kNobodys(limits::kKeyHashBytes, '\0');
    const bool known = sign::is_api_secret(secret, ticket == nullptr ? kNobodys : ticket->hash.view());
    if (!known || ticket == nullptr) return done(no_such_token());
    admit({.ticket = ticket->id, .identity = {}, .node = node, .key = {}, .expires_at = {}}, request, done);
  });
}

void NodeEnrollment::renew(const sign::NodeClaim& claim, const std::string& request_der,
                           std::function<void(Issued)> done) const {
  Result<sign::NodeRequest> read = sign::NodeRequest::read(request_der);
  if (!read) return done(ApiError{ErrorKind::kInvalidArgument, read.error().message});
  admit({.ticket = {},
         .identity = NodeIdentityId{claim.identity},
         .node = claim.node,
         .key = {},
         .expires_at = {}},
        std::make_shared<const sign::NodeRequest>(std::move(*read)), std::move(done));
}

void NodeEnrollment::end_expired() const { connections_->end_expired(unix_now()); }

}  // namespace gpusched::api
