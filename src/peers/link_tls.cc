#include "peers/link_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>

namespace gpusched::peers {
namespace {

namespace ssl = boost::asio::ssl;

Error bad_file(const std::string& file, const std::string& what) {
  return {.code = ErrorCode::kInvalidArgument, .message = file + " " + what};
}

std::string set_up(ssl::context& context, const LinkFiles& files) {
  SSL_CTX* const native = context.native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  boost::system::error_code failed;
  context.use_certificate_chain_file(files.certificate, failed);
  if (!failed) context.use_private_key_file(files.certificate, ssl::context::pem, failed);
  if (failed) return files.certificate + " is no replica's certificate with its key: " + failed.message();
  context.load_verify_file(files.authority, failed);
  if (failed) return files.authority + " is no authority's certificate: " + failed.message();
  context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  return {};
}

}  // namespace

Result<std::unique_ptr<LinkTls>> load_link_tls(const LinkFiles& files, const sign::ReplicaClaim& own) {
  ERR_clear_error();
  auto made = std::make_unique<LinkTls>();
  for (ssl::context* const context : {&made->client, &made->server}) {
    const std::string fault = set_up(*context, files);
    ERR_clear_error();
    if (!fault.empty()) return Error{.code = ErrorCode::kInvalidArgument, .message = fault};
  }
  const std::optional<sign::ReplicaClaim> claim =
      sign::replica_of(SSL_CTX_get0_certificate(made->client.native_handle()));
  if (!claim) return bad_file(files.certificate, "is not the certificate of a replica");
  if (claim->cluster != own.cluster) return bad_file(files.certificate, "is of another cluster");
  if (claim->replica != own.replica)
    return bad_file(files.certificate, "is the certificate of replica " + std::to_string(claim->replica) +
                                           ", and this is replica " + std::to_string(own.replica));
  return made;
}

std::optional<sign::ReplicaClaim> claim_of_peer(ssl_st* ssl) {
  const X509* const certificate = SSL_get0_peer_certificate(ssl);
  return certificate == nullptr ? std::nullopt : sign::replica_of(certificate);
}

std::string link_failure(ssl_st* ssl, const boost::system::error_code& failed) {
  const long verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK)
    return std::string("its certificate is not one of this cluster's authority (") +
           X509_verify_cert_error_string(verified) + ")";
  if (failed == boost::asio::error::eof || failed == boost::asio::ssl::error::stream_truncated ||
      failed == boost::asio::error::connection_reset)
    return "it closed the connection";
  if (failed.category() == boost::asio::error::get_ssl_category()) {
    const char* const reason = ERR_reason_error_string(static_cast<unsigned long>(failed.value()));
    const std::string text = reason == nullptr ? failed.message() : reason;
    return text.find("alert") == std::string::npos ? "TLS failed: " + text
                                                   : "it refused this replica's certificate: " + text;
  }
  return failed.message();
}

}  // namespace gpusched::peers
