#include "api/limits/network_callers.h"

#include <algorithm>
#include <optional>
#include <string>

namespace gpusched::api {

const CallerPtr& network_caller() {
  static const CallerPtr kCaller = std::make_shared<const access::Caller>(access::anonymous_caller());
  return kCaller;
}

bool is_network_caller(const access::Caller& caller) { return &caller == network_caller().get(); }

ApiError missing_credential(std::string_view how) {
  ApiError error = unknown_credential();
  error.message += "; " + std::string(how);
  return error;
}

Answer<CallerPtr> NetworkCallers::caller_at(std::string_view address) const {
  const std::optional<IpAddress> numeric = parse_ip_address(address);
  const bool is_inside = numeric && std::ranges::any_of(options_.networks, [&](const IpNetwork& network) {
                           return network.contains(*numeric);
                         });
  if (!is_inside) {
    return missing_credential(
        "callers without one are let in from the networks of api.anonymous_networks, and " +
        std::string(address) + " is in none of them");
  }
  if (!options_.has_nodes && options_.nodes->is_node(*numeric)) {
    return missing_credential(
        "callers without one are let in from the networks of api.anonymous_networks, but not from addresses "
        "of nodes, "
        "where jobs run, and " +
        std::string(address) + " is one; api.anonymous_nodes: true lets those in, too");
  }
  return network_caller();
}

Answer<CallerPtr> NetworkCallers::holder_of(std::string_view token) const {
  return options_.tokens != nullptr ? options_.tokens->holder_of(token)
                                    : Answer<CallerPtr>(unknown_credential());
}

Answer<std::shared_ptr<void>> NetworkCallers::while_valid(const CallerPtr& caller,
                                                          std::function<void(const ApiError&)> end) const {
  if (options_.tokens == nullptr) return std::shared_ptr<void>();
  return options_.tokens->while_valid(caller, std::move(end));
}

}  // namespace gpusched::api
