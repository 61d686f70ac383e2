#include "api/grpc/tls_credentials.h"

#include <grpc/grpc_security.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"

namespace gpusched::api {
namespace {

/// The C++ interface of gRPC reads certificates once or by a clock; its C interface asks at each connection.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsCredentials(std::shared_ptr<const sign::TlsServer> tls)
      : tls_(std::move(tls)),
        native_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY, fetch, this))) {
    CHECK(native_ != nullptr);
  }
  ~TlsCredentials() override { grpc_server_credentials_release(native_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    CHECK(false);  // The services find out who calls.
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), native_);
  }

  /// On gRPC's threads, for each connection.
  static grpc_ssl_certificate_config_reload_status fetch(void* self,
                                                         grpc_ssl_server_certificate_config** config) {
    return static_cast<TlsCredentials*>(self)->fetch_new(config);
  }
  grpc_ssl_certificate_config_reload_status fetch_new(grpc_ssl_server_certificate_config** config) {
    std::shared_ptr<const sign::TlsIdentity> identity = tls_->identity();
    const std::lock_guard lock(mutex_);
    if (identity == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const std::string key = identity->key_pem();
    const std::string certificates = identity->certificates_pem();
    const grpc_ssl_pem_key_cert_pair pair{.private_key = key.c_str(), .cert_chain = certificates.c_str()};
    // gRPC wants authorities of clients. It sees that a client has the key of its certificate, and no more:
    // whose that is the services find out, who can say why one is refused.
    *config = grpc_ssl_server_certificate_config_create(certificates.c_str(), &pair, 1);
    given_ = std::move(identity);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const sign::TlsServer> tls_;
  std::mutex mutex_;
  std::shared_ptr<const sign::TlsIdentity> given_;
  grpc_server_credentials* const native_;  // Last: it may ask at once.
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> make_tls_credentials(std::shared_ptr<const sign::TlsServer> tls) {
  return std::make_shared<TlsCredentials>(std::move(tls));
}

void set_up_grpc_tls(bool allow_tls12) {
  // Only TLS 1.2 uses these; the suites of 1.3 are not chosen by it. Suites of a shared key, which we have
  // none of, leave TLS 1.2 without any.
  const char* const tls12 = allow_tls12
                                ? "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
                                  "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256:"
                                  "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-CHACHA20-POLY1305:@SECLEVEL=2"
                                : "PSK-AES256-GCM-SHA384:@SECLEVEL=2";
  CHECK(::setenv("GRPC_SSL_CIPHER_SUITES", tls12, 1) == 0);
}

}  // namespace gpusched::api
