#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/net/ip_network.h"
#include "base/result.h"
#include "client/http_client.h"
#include "pilot/outgoing/audit_file.h"

namespace gpusched::pilot {

/// Somebody that requests may be sent to.
struct Destination {
  std::string url;
  std::string token = {};
  std::string ca_file = {};
  std::vector<IpNetwork> addresses = {};  ///< Addresses that its host may have; empty: any.
  std::vector<std::string> secrets = {};  ///< Further ones that requests to it have: the audit hides them.
};

/// The one way out of the program. It sends to the destinations that it was made with and to no others, along
/// no proxy and no redirect, and writes down each byte before it is sent. The addresses that it connects to
/// are looked at: a name of this machine's loopback may not be another machine, and a destination with
/// `addresses` may have no other ones. Not thread-safe.
class Outbox {
 public:
  /// `wall` is the time for the audit.
  Outbox(std::vector<Destination> allowed, AuditFile& audit, std::function<Time()> wall);

  /// Sends to the destination with that URL. Errors as HttpClient's, and kPermissionDenied: it is none of
  /// those that are allowed.
  Result<HttpAnswer> send(const std::string& url, const HttpRequest& request);

 private:
  Result<HttpClient*> client_of(const Destination& destination);

  const std::vector<Destination> allowed_;
  AuditFile& audit_;
  const std::function<Time()> wall_;
  std::map<std::string, HttpClient> clients_;
};

}  // namespace gpusched::pilot
