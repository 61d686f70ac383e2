#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "api/contract/errors.h"
#include "base/time.h"
#include "host/host.h"
#include "sign/authority.h"
#include "sign/keys/order_key.h"

namespace gpusched::api {

struct NodeEnrollmentOptions {
  std::shared_ptr<const sign::Authority> authority = nullptr;  ///< None: nobody gets a certificate.
  std::shared_ptr<const sign::OrderKey> order_key = nullptr;   ///< Signs orders; there whenever that is.
  std::string order_keys = {};      ///< Told to nodes as those that may sign; empty: they know.
  Duration valid = hours(24 * 90);  ///< Validity of a certificate.
  bool required = false;            ///< Nobody is a node without a certificate.
};

/// The nodes that have certificates, and their open streams. Told by the observer; asked on any
/// thread.
class NodeConnections : public std::enable_shared_from_this<NodeConnections> {
 public:
  /// Whether somebody who shows that (none: no certificate) may speak as the node from now on, and until
  /// `end` is called, from any thread: revoked, replaced, or expired. The result is kept as long as it
  /// speaks.
  Answer<std::shared_ptr<void>> let_in(const std::string& node, const std::optional<sign::NodeClaim>& claim,
                                       bool required, std::function<void(const ApiError&)> end);
  /// The same without staying.
  std::optional<ApiError> refusal(const std::string& node, const std::optional<sign::NodeClaim>& claim,
                                  bool required) const;

  /// All of a state. Both on the observer's thread.
  void fill(const State& state);
  void observe(const State& state, const Changes& changes);
  /// Ends what speaks by a certificate that has expired, and was not renewed since. About once a second.
  void end_expired(int64_t now_s);

 private:
  struct Known {
    uint64_t identity = 0;
    bool revoked = false;
  };
  struct Open {
    std::string node;
    std::optional<sign::NodeClaim> claim;
    std::function<void(const ApiError&)> end;
  };
  std::optional<ApiError> refusal_here(const std::string& node, const std::optional<sign::NodeClaim>& claim,
                                       bool required) const;
  void set(const NodeIdentity& identity);
  void look_at(const std::string& node);

  mutable std::mutex mutex_;
  std::map<std::string, Known, std::less<>> known_;
  std::list<Open> open_;
};

/// Where machines become nodes, and nodes get their next certificates. Thread-safe. The host must outlive it.
class NodeEnrollment {
 public:
  NodeEnrollment(Host& host, NodeEnrollmentOptions options);

  /// The claim of the certificate that a stream shows (PEM); nothing: it shows none.
  Answer<std::optional<sign::NodeClaim>> claim_of(const std::string& certificate_pem) const;
  Answer<std::shared_ptr<void>> let_in(const std::string& node, const std::optional<sign::NodeClaim>& claim,
                                       std::function<void(const ApiError&)> end) const {
    return connections_->let_in(node, claim, options_.required, std::move(end));
  }
  std::optional<ApiError> refusal(const std::string& node,
                                  const std::optional<sign::NodeClaim>& claim) const {
    return connections_->refusal(node, claim, options_.required);
  }

  /// The key that signs the orders to nodes with certificates.
  const std::shared_ptr<const sign::OrderKey>& order_key() const { return options_.order_key; }

  /// While it changes: itself and the next one. After that it alone. Empty: it has not changed.
  const std::string& told_order_keys() const { return options_.order_keys; }

  using Issued = Answer<std::string>;  ///< PEM: the node's certificate, and its authority's.
  /// Uses a node token up for the key of the request. `done`, from any thread, no earlier than that is
  /// durable.
  void join(const std::string& node, const std::string& token, const std::string& request_der,
            std::function<void(Issued)> done) const;
  /// For who is let in by that claim.
  void renew(const sign::NodeClaim& claim, const std::string& request_der,
             std::function<void(Issued)> done) const;
  void end_expired() const;

 private:
  void admit(AdmitNode command, const std::shared_ptr<const sign::NodeRequest>& request,
             std::function<void(Issued)> done) const;

  Host& host_;
  const NodeEnrollmentOptions options_;
  const std::shared_ptr<NodeConnections> connections_ = std::make_shared<NodeConnections>();
};

}  // namespace gpusched::api
