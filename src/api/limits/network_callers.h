#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "api/limits/node_addresses.h"
#include "base/net/ip_network.h"

namespace gpusched::api {

/// The caller without a credential from such a network: one object, shared by all its calls, by which it is
/// told from one on loopback.
const CallerPtr& network_caller();
bool is_network_caller(const access::Caller& caller);

/// Networks from which callers without a credential are let in, as an administrator configured
/// (`api.anonymous_networks`), beside the holders of tokens. Jobs run on nodes, and whoever may submit one
/// calls from there: addresses of nodes are left out unless that is wanted. The connection's address counts;
/// no header does. Thread-safe.
class NetworkCallers final : public TokenHolders {
 public:
  struct Options {
    std::vector<IpNetwork> networks = {};
    bool has_nodes = false;                ///< Nodes' addresses in them count, too (`api.anonymous_nodes`).
    const NodeAddresses* nodes = nullptr;  ///< Not null. It must outlive this, and so must `tokens`.
    const TokenHolders* tokens = nullptr;  ///< Null: no tokens are taken.
  };
  explicit NetworkCallers(Options options) : options_(std::move(options)) {}

  /// The caller there. kUnauthenticated: it needs a credential; the message names the setting that would let
  /// it in.
  Answer<CallerPtr> caller_at(std::string_view address) const;

  Answer<CallerPtr> holder_of(std::string_view token) const override;
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller,
                                            std::function<void(const ApiError&)> end) const override;

 private:
  const Options options_;
};

/// The error of a call without a credential where one is needed. `how`: the setting that would let it in, as
/// a clause.
ApiError missing_credential(std::string_view how);

}  // namespace gpusched::api
