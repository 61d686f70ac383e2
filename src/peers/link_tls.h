#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "sign/replica_certificate.h"

struct ssl_st;

/// TLS between replicas: version 1.3, both ends show a certificate of the cluster's authority.
namespace gpusched::peers {

/// Files in PEM format.
struct LinkFiles {
  std::string certificate;  ///< Key, certificate, and the authority's own behind it.
  std::string authority;
};

/// The two ends' settings. Kept by the transport, read by its links on its thread.
struct LinkTls {
  boost::asio::ssl::context client{boost::asio::ssl::context::tls_client};
  boost::asio::ssl::context server{boost::asio::ssl::context::tls_server};
};

/// kInvalidArgument: a file that does not hold what it should, or a certificate that is not that of `own`.
Result<std::unique_ptr<LinkTls>> load_link_tls(const LinkFiles& files, const sign::ReplicaClaim& own);

/// The replica whose certificate the other end showed; nothing: it is none of a replica.
std::optional<sign::ReplicaClaim> claim_of_peer(ssl_st* ssl);

/// Why a step on a link failed, as a sentence without an end.
std::string link_failure(ssl_st* ssl, const boost::system::error_code& failed);

}  // namespace gpusched::peers
